//! Digests and encodings of values: the same value always gives the same bytes.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Encodes bytes as lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Returns `sha256:` and the digest of the value as JSON with sorted keys.
#[must_use]
pub fn digest<T: Serialize>(value: &T) -> String {
    // The maps of `Value` are sorted, so that the order of fields in a type never matters.
    let canonical = serde_json::to_value(value).unwrap_or_default().to_string();
    format!("sha256:{}", hex(&Sha256::digest(canonical)))
}

/// Checks whether a text has the form of a result of [`digest`].
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let is_digit = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
    let digits = text.strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}
