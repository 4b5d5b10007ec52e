//! The sample for an auditor, which every holder of the records can reproduce: requests are ranked by SHA-256 of a seed
//! and their UID, and the first are selected. It uses no random number generator, since SHA-256 is available in every
//! language.

use oz_api::encode::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The parameters of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The number of requests; all requests if there are fewer.
    pub size: u32,
    /// The seed; another seed selects other requests.
    pub seed: u64,
}

/// Returns the rank of a request in a sample; the requests with the lowest ranks are selected. The rank is the SHA-256,
/// in hexadecimal, of `oz-evidence-sample/v1`, the seed in decimal and the UID, separated by line feeds.
#[must_use]
pub fn rank(seed: u64, uid: &str) -> String {
    hex(&Sha256::digest(format!(
        "oz-evidence-sample/v1\n{seed}\n{uid}"
    )))
}
