//! The parts of a recording as a chain: what each part was, as it is stored, is in the head after it. Whoever knows
//! the last head knows of a part that was changed, left out or exchanged, and needs nothing to read them with.

use oz_api::encode::hex;
use sha2::{Digest, Sha256};

const PURPOSE: &str = "oz.wizardofoz.co/recording/v1";

/// The head of a recording, before its first part or after one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many parts there are.
    pub parts: u32,
    /// `sha256:` and 64 digits.
    pub digest: String,
}

impl Head {
    /// Before the first part of the session with this key.
    #[must_use]
    pub fn start(session: &str) -> Self {
        Self {
            parts: 0,
            digest: digest(&[PURPOSE.as_bytes(), session.as_bytes()]),
        }
    }

    /// After one more part, which is stored as `bytes`.
    #[must_use]
    pub fn after(&self, bytes: &[u8]) -> Self {
        let part = hex(&Sha256::digest(bytes));
        Self {
            parts: self.parts.saturating_add(1),
            digest: digest(&[self.digest.as_bytes(), part.as_bytes()]),
        }
    }
}

fn digest(lines: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line);
        hash.update(b"\n");
    }
    format!("sha256:{}", hex(&hash.finalize()))
}
