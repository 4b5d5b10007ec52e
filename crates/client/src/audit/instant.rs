//! Instants as users write them.

use jiff::{SignedDuration, Timestamp};
use oz_api::duration::GoDuration;

/// The reason why a text is no instant.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InstantError {
    /// The text has another form.
    #[error("write a duration such as 24h, or an instant such as 2026-01-02T15:04:05Z")]
    Form,
    /// The instant is too long ago.
    #[error(transparent)]
    Range(#[from] jiff::Error),
}

/// Parses an instant, or a duration that ends `now`.
///
/// # Errors
/// The text is neither of them.
pub fn instant(text: &str, now: Timestamp) -> Result<Timestamp, InstantError> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago: GoDuration = text.parse().map_err(|_| InstantError::Form)?;
    Ok(now.checked_sub(SignedDuration::from(ago))?)
}
