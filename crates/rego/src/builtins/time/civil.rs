//! Dates and times of day, and time zones. The interpreter has the database of time zones.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use regorus::Value;

use super::super::interpreter;
use super::super::operand::{Failure, failed, text};

/// The number of nanoseconds of a second.
pub(super) const SECOND: i128 = 1_000_000_000;
/// The failure of an instant that OPA's 64 bits do not hold, in Go's words.
pub(super) const OUT_OF_RANGE: &str = "time outside of valid range";

/// A date and a time of day.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    /// Seconds since midnight.
    pub(super) second: i64,
    pub(super) nanosecond: i64,
}

impl Civil {
    /// Returns the date and time of an instant in UTC.
    pub(super) fn from_nanoseconds(nanoseconds: i128) -> Result<Self, Failure> {
        let instant = Timestamp::from_nanosecond(nanoseconds).map_err(out_of_range)?;
        let time = instant.to_zoned(TimeZone::UTC).datetime();
        Ok(Self {
            year: time.year().into(),
            month: time.month().into(),
            day: time.day().into(),
            second: i64::from(time.hour()) * 3600
                + i64::from(time.minute()) * 60
                + i64::from(time.second()),
            nanosecond: time.subsec_nanosecond().into(),
        })
    }

    /// Returns the date. Months and days may be out of their ranges.
    pub(super) fn date(&self) -> Result<Date, Failure> {
        let month = self.month - 1;
        let first = date(self.year + month.div_euclid(12), month.rem_euclid(12) + 1)?;
        let days = Span::new().try_days(self.day - 1).map_err(out_of_range)?;
        first.checked_add(days).map_err(out_of_range)
    }

    /// Returns the nanoseconds since 1970 in UTC.
    pub(super) fn nanoseconds(&self) -> Result<i128, Failure> {
        let midnight = self.date()?.to_zoned(TimeZone::UTC).map_err(out_of_range)?;
        let seconds = midnight.timestamp().as_second() + self.second;
        Ok(i128::from(seconds) * SECOND + i128::from(self.nanosecond))
    }
}

/// Returns the first day of a month.
fn date(year: i64, month: i64) -> Result<Date, Failure> {
    let (Ok(year), Ok(month)) = (i16::try_from(year), i8::try_from(month)) else {
        return failed(OUT_OF_RANGE);
    };
    Date::new(year, month, 1).map_err(out_of_range)
}

/// Returns the number of days of a month.
pub(super) fn days_in(year: i64, month: i64) -> Result<i64, Failure> {
    Ok(date(year, month)?.days_in_month().into())
}

/// Returns the failure of a calculation beyond the range of dates.
pub(super) fn out_of_range(_: jiff::Error) -> Failure {
    Failure::Failed(OUT_OF_RANGE.to_owned())
}

/// An instant in a time zone.
pub(super) struct Zoned {
    pub(super) civil: Civil,
    /// Seconds east of UTC.
    pub(super) offset: i64,
    zone: String,
}

impl Zoned {
    /// Reads the first operand: nanoseconds, or an array of nanoseconds and the name of a time zone.
    pub(super) fn from_values(values: &[Value]) -> Result<Self, Failure> {
        let (nanoseconds, zone) = match values.first() {
            Some(number @ Value::Number(_)) => (number.clone(), String::new()),
            Some(Value::Array(parts)) => {
                let parts: Vec<Value> = parts.iter().cloned().collect();
                let zone = if parts.len() > 1 {
                    text(&parts, 1)?
                } else {
                    ""
                };
                (parts.first().cloned().ok_or_else(no_time)?, zone.to_owned())
            }
            _ => return Err(no_time()),
        };
        let Value::Number(number) = &nanoseconds else {
            return Err(no_time());
        };
        let too_big = || Failure::Failed("timestamp too big".to_owned());
        let nanoseconds = number.as_i64().ok_or_else(too_big)?;
        let zone = if zone == "UTC" { String::new() } else { zone };
        let offset = offset(i128::from(nanoseconds), &zone)?;
        Ok(Self {
            civil: Civil::from_nanoseconds(i128::from(nanoseconds) + i128::from(offset) * SECOND)?,
            offset,
            zone,
        })
    }

    /// Returns the instant of a date and time in the same time zone.
    pub(super) fn instant_of(&self, civil: &Civil) -> Result<i128, Failure> {
        let local = civil.nanoseconds()?;
        let first = offset(local, &self.zone)?;
        let second = offset(local - i128::from(first) * SECOND, &self.zone)?;
        Ok(local - i128::from(second) * SECOND)
    }

    /// Returns the abbreviation of the time zone.
    pub(super) fn abbreviation(&self) -> Result<String, Failure> {
        if self.zone.is_empty() {
            return Ok("UTC".to_owned());
        }
        Err(Failure::Failed(format!(
            "the abbreviation of {} is not known: write its offset, as by `-0700`",
            self.zone
        )))
    }
}

/// Returns the offset of a time zone at an instant, in seconds.
fn offset(nanoseconds: i128, zone: &str) -> Result<i64, Failure> {
    if zone.is_empty() {
        return Ok(0);
    }
    let seconds = nanoseconds.div_euclid(SECOND);
    let Ok(instant) = i64::try_from(seconds * SECOND) else {
        return failed(OUT_OF_RANGE);
    };
    let time = [Value::from(vec![Value::from(instant), Value::from(zone)])];
    let [year, month, day] = part("time.date", &time)?;
    let [hour, minute, second] = part("time.clock", &time)?;
    let local = Civil {
        year,
        month,
        day,
        second: hour * 3600 + minute * 60 + second,
        nanosecond: 0,
    };
    i64::try_from(local.nanoseconds()? / SECOND - seconds).map_err(|_| Failure::Undefined)
}

fn part(function: &str, time: &[Value]) -> Result<[i64; 3], Failure> {
    let Value::Array(parts) = interpreter::call(function, time)? else {
        return Err(Failure::Undefined);
    };
    let parts: Vec<i64> = parts.iter().filter_map(|part| part.as_i64().ok()).collect();
    parts.try_into().map_err(|_| Failure::Undefined)
}

/// Returns the failure of an argument that is not a time.
fn no_time() -> Failure {
    Failure::Failed("operand 1 must be either number (ns) or [number (ns), string (tz)]".to_owned())
}
