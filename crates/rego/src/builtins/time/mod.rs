//! The functions `time.*`, equal to the package `time` of Go.
//! See <https://pkg.go.dev/time>.

mod civil;
mod duration;
mod format;
mod layout;
mod parse;

use jiff::Timestamp;
use regorus::Value;

use self::civil::{Civil, OUT_OF_RANGE, Zoned, out_of_range};
use super::operand::{Answer, Failure, bounded, failed, integer, text};

pub(super) use self::duration::parse_duration;

/// The layouts that have names.
fn resolve_layout(layout: &str) -> &str {
    match layout {
        "ANSIC" => "Mon Jan _2 15:04:05 2006",
        "UnixDate" => "Mon Jan _2 15:04:05 MST 2006",
        "RubyDate" => "Mon Jan 02 15:04:05 -0700 2006",
        "RFC822" => "02 Jan 06 15:04 MST",
        "RFC822Z" => "02 Jan 06 15:04 -0700",
        "RFC850" => "Monday, 02-Jan-06 15:04:05 MST",
        "RFC1123" => "Mon, 02 Jan 2006 15:04:05 MST",
        "RFC1123Z" => "Mon, 02 Jan 2006 15:04:05 -0700",
        "RFC3339" => "2006-01-02T15:04:05Z07:00",
        "RFC3339Nano" => "2006-01-02T15:04:05.999999999Z07:00",
        layout => layout,
    }
}

/// Implements `time.parse_ns`.
pub(super) fn parse_ns(values: &[Value]) -> Answer {
    let (layout, value) = (text(values, 0)?, text(values, 1)?);
    instant(parse::parse(resolve_layout(layout), value))
}

/// Implements `time.parse_rfc3339_ns`.
pub(super) fn parse_rfc3339(values: &[Value]) -> Answer {
    instant(parse::parse(resolve_layout("RFC3339"), text(values, 0)?))
}

/// Checks whether a text is a time in a layout.
pub(super) fn is_time(layout: &str, text: &str) -> bool {
    parse::parse(layout, text).is_ok()
}

/// Returns nanoseconds since 1970, if 64 bits hold them.
fn instant(parsed: Result<i128, Failure>) -> Answer {
    match parsed.map(i64::try_from) {
        Ok(Ok(nanoseconds)) => Ok(Value::from(nanoseconds)),
        Ok(Err(_)) => failed(OUT_OF_RANGE),
        Err(why) => Err(why),
    }
}

/// Implements `time.format`.
pub(super) fn format(values: &[Value]) -> Answer {
    let time = Zoned::from_values(values)?;
    let layout = match values.first() {
        Some(Value::Array(parts)) if parts.len() > 2 => {
            let parts: Vec<Value> = parts.iter().cloned().collect();
            text(&parts, 2)?.to_owned()
        }
        _ => String::new(),
    };
    let layout = if layout.is_empty() {
        "RFC3339Nano"
    } else {
        &layout
    };
    bounded(format::format(&time, resolve_layout(layout))?)
}

/// Implements `time.add_date`: a day after the end of a month is one of the next month.
pub(super) fn add_date(values: &[Value]) -> Answer {
    let time = Zoned::from_values(values)?;
    let (years, months, days) = (
        integer(values, 1)?,
        integer(values, 2)?,
        integer(values, 3)?,
    );
    let far = |number: i64| number.unsigned_abs() > 1_000_000;
    if far(years) || far(months) || far(days) {
        return failed(OUT_OF_RANGE);
    }
    let civil = time.civil;
    let moved = Civil {
        year: civil.year + years,
        month: civil.month + months,
        day: civil.day + days,
        ..civil
    };
    instant(Ok(time.instant_of(&moved)?))
}

/// Writes an instant as `20060102T150405Z`.
pub(super) fn stamp(nanoseconds: i64) -> Result<String, Failure> {
    let instant = Timestamp::from_nanosecond(nanoseconds.into()).map_err(out_of_range)?;
    Ok(instant.strftime("%Y%m%dT%H%M%SZ").to_string())
}
