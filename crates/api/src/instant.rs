//! Comparison and addition of instants, which all expiries use, and instants in text form: RFC 3339 only. The library
//! accepts more, such as a space for the `T` and names of time zones, which the API server and other clients would not
//! accept.

use jiff::{SignedDuration, Timestamp};

/// Checks whether an instant is reached: true at the instant, and after it. Every beginning and every end uses this
/// function.
#[must_use]
pub fn has_come(now: Timestamp, instant: Timestamp) -> bool {
    now >= instant
}

/// Returns the instant that is later by `length`; the last possible instant instead of an overflow.
#[must_use]
pub fn after(instant: Timestamp, length: impl Into<SignedDuration>) -> Timestamp {
    instant.checked_add(length.into()).unwrap_or(Timestamp::MAX)
}

/// The error of a text that is not an instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an instant in RFC 3339, such as 2026-01-31T09:00:00Z, with Z or an offset")]
pub struct InstantError;

/// Reads an instant.
///
/// # Errors
/// The text is not RFC 3339, or names no instant.
pub fn instant(text: &str) -> Result<Timestamp, InstantError> {
    if !is_rfc3339(text.as_bytes()) {
        return Err(InstantError);
    }
    text.parse().map_err(|_| InstantError)
}

/// Checks for `YYYY-MM-DDThh:mm:ss`, an optional fraction, then `Z` or `±hh:mm`. The parser checks the ranges.
fn is_rfc3339(text: &[u8]) -> bool {
    let shape = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(have, want)| match want {
                b'0' => have.is_ascii_digit(),
                b'+' => matches!(have, b'+' | b'-'),
                want => have == want,
            })
    };
    let (Some(head), Some(mut rest)) = (text.get(..19), text.get(19..)) else {
        return false;
    };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 || digits > 9 {
            return false;
        }
        let Some(after) = fraction.get(digits..) else {
            return false;
        };
        rest = after;
    }
    // A leap second is not an instant of the clock that oz compares instants with.
    shape(head, b"0000-00-00T00:00:00")
        && head.get(17..) != Some(b"60")
        && (rest == b"Z" || shape(rest, b"+00:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_is_an_instant() {
        for (text, canonical) in [
            ("2026-01-31T09:00:00Z", Some("2026-01-31T09:00:00Z")),
            ("2022-01-24T21:08:00+08:00", Some("2022-01-24T13:08:00Z")),
            ("2026-01-31T09:00:00-00:30", Some("2026-01-31T09:30:00Z")),
            (
                "2026-01-31T09:00:00.000000001Z",
                Some("2026-01-31T09:00:00.000000001Z"),
            ),
            (
                "2026-01-31T09:00:00.5+00:00",
                Some("2026-01-31T09:00:00.5Z"),
            ),
            ("2026-01-31T09:00:00", None),
            ("2026-01-31 09:00:00Z", None),
            ("2026-01-31t09:00:00z", None),
            ("2026-01-31T09:00Z", None),
            ("2026-01-31T09:00:00,5Z", None),
            ("2026-01-31T09:00:00.Z", None),
            ("2026-01-31T09:00:00.0000000001Z", None),
            ("2026-01-31T09:00:00+0800", None),
            ("2026-01-31T09:00:00Z[UTC]", None),
            ("2026-01-31T09:00:60Z", None),
            ("2026-02-30T09:00:00Z", None),
            ("2026-01-31T25:00:00Z", None),
            ("tomorrow", None),
            ("", None),
            ("2026-01-31T09:00:00Z ", None),
            ("２026-01-31T09:00:00Z", None),
        ] {
            let read = instant(text).ok().map(|instant| instant.to_string());
            assert_eq!(read.as_deref(), canonical, "{text:?}");
        }
    }
}
