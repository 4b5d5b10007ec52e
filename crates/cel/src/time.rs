//! Instants and durations as CEL values. CEL's types are those of another library, which this module does not name: it
//! creates them from texts.

use chrono_tz::Tz;
use jiff::{SignedDuration, Timestamp};
use kube_cel::cel::Value;
use oz_api::duration::GoDuration;

use crate::CelError;

/// Returns the time zone with this name in the IANA database; UTC without a name.
pub(crate) fn zone(name: Option<&str>) -> Result<Tz, CelError> {
    let Some(name) = name else {
        return Ok(Tz::UTC);
    };
    name.parse().map_err(|_| CelError::NoZone {
        name: name.chars().take(64).collect(),
    })
}

/// Returns an instant in a zone, as a CEL value.
pub(crate) fn instant(instant: Timestamp, zone: Tz) -> Result<Value, CelError> {
    let text = instant.to_string();
    let parsed = text.parse().map_err(|error| CelError::Instant {
        line: format!("{error}"),
        instant: text.clone(),
    });
    match Value::Timestamp(parsed?) {
        Value::Timestamp(instant) => Ok(Value::Timestamp(
            instant.with_timezone(&zone).fixed_offset(),
        )),
        other => Ok(other),
    }
}

/// Returns a duration as a CEL value.
pub(crate) fn length(length: GoDuration) -> Result<Value, CelError> {
    let end = Timestamp::UNIX_EPOCH
        .checked_add(SignedDuration::from(length))
        .unwrap_or(Timestamp::MAX);
    match (
        instant(end, Tz::UTC)?,
        instant(Timestamp::UNIX_EPOCH, Tz::UTC)?,
    ) {
        (Value::Timestamp(end), Value::Timestamp(begin)) => Ok(Value::Duration(end - begin)),
        _ => Err(CelError::Endless),
    }
}
