//! The signature by which a server verifies that oz sent a notification: the headers of Standard Webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The prefix of a key, as the tools of Standard Webhooks write it.
const PREFIX: &str = "whsec_";
/// The length of a key, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// The text is not a signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be whsec_ and 24 to 64 bytes in base64")]
pub struct SigningKeyError;

/// A key that signs notifications.
#[derive(Clone)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// Reads a key: `whsec_` and 24 to 64 bytes in base64, or the base64 alone.
    ///
    /// # Errors
    /// The required form. The message does not contain the text itself.
    pub fn read(text: &str) -> Result<Self, SigningKeyError> {
        let text = text.trim();
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        let bytes = STANDARD.decode(text).map_err(|_| SigningKeyError)?;
        if LENGTHS.contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(SigningKeyError)
        }
    }

    /// Returns the value of `webhook-signature` for a body with this `webhook-id`, at this time in seconds.
    #[must_use]
    pub fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        // HMAC accepts a key of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return String::new();
        };
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}
