//! The parts of a recording as a chain: the head after a part covers the stored bytes of that part. A reader with the
//! last head detects a part that was changed, omitted or exchanged, and requires no identity to do so.

use oz_api::encode::hex;
use sha2::{Digest, Sha256};

const PURPOSE: &str = "oz.wizardofoz.co/recording/v1";

/// The head of a recording, before its first part or after a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of parts.
    pub parts: u32,
    /// The digest: `sha256:` and 64 digits.
    pub digest: String,
}

impl Head {
    /// Returns the head before the first part of the session with this key.
    #[must_use]
    pub fn start(session: &str) -> Self {
        Self {
            parts: 0,
            digest: digest(&[PURPOSE.as_bytes(), session.as_bytes()]),
        }
    }

    /// Returns the head after one more part, which is stored as `bytes`.
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
