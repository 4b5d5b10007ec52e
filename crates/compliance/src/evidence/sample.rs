//! Drawing an auditor's sample, so that whoever has the records draws the same: requests are ranked by SHA-256 of a
//! seed and their UID, and the first are taken. No generator of random numbers: any language has SHA-256.

use oz_api::encode::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What is to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// How many requests; all, if there are no more.
    pub size: u32,
    /// Another seed draws others.
    pub seed: u64,
}

/// Where a request stands among those that may be drawn: the lowest are. In hexadecimal, of
/// `oz-evidence-sample/v1`, the seed in decimal and the UID, with line feeds between.
#[must_use]
pub fn rank(seed: u64, uid: &str) -> String {
    hex(&Sha256::digest(format!(
        "oz-evidence-sample/v1\n{seed}\n{uid}"
    )))
}
