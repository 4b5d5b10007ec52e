//! Durations in the text form of specs and messages: the syntax, the range and the error texts of Go's
//! `time.ParseDuration` and `Duration.String`, which the original uses. Specs store the text as written; only this
//! module parses it.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

/// A duration in whole nanoseconds, about ±292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

const SECOND: u64 = 1_000_000_000;
/// The number of quoted characters of a text that is not a duration: a user may have stored a megabyte of them, and
/// each of them is four times as long when it is quoted, in every message about it.
const MAX_QUOTED: usize = 80;
/// The magnitude of the smallest duration, which is by one greater than that of the largest.
const LIMIT: u64 = 1 << 63;

impl GoDuration {
    /// The duration zero.
    pub const ZERO: Self = Self(0);

    /// Creates a duration of that many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a duration of that many seconds, or the longest possible one.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND.cast_signed()))
    }

    /// Returns the whole duration in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Checks whether the duration is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Checks whether the duration is greater than zero.
    #[must_use]
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Checks whether the duration is less than zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

/// The reason why the value of a flag, or of a field of the configuration, is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// It is not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// It is less than zero.
    #[error("must not be negative")]
    Negative,
    /// It is zero or less.
    #[error("must be greater than zero")]
    NotPositive,
}

/// Parses the value of a flag or field that may be zero.
///
/// # Errors
/// The reason why the value is invalid.
pub fn not_negative(text: &str) -> Result<SignedDuration, FlagError> {
    let duration: GoDuration = text.parse()?;
    if duration.is_negative() {
        return Err(FlagError::Negative);
    }
    Ok(duration.into())
}

/// Parses the value of a flag or field that must be greater than zero.
///
/// # Errors
/// The reason why the value is invalid.
pub fn positive(text: &str) -> Result<SignedDuration, FlagError> {
    let duration: GoDuration = text.parse()?;
    if !duration.is_positive() {
        return Err(FlagError::NotPositive);
    }
    Ok(duration.into())
}

impl From<SignedDuration> for GoDuration {
    /// Converts a duration; a longer one becomes the longest possible one.
    fn from(duration: SignedDuration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl From<GoDuration> for SignedDuration {
    fn from(duration: GoDuration) -> Self {
        Self::from_nanos(duration.0)
    }
}

/// The reason why a text is not a duration, with the messages of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text has another syntax, or is out of range.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A unit that does not exist; there are no days.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// The text at the position of a unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl FromStr for GoDuration {
    type Err = DurationError;

    /// Reads an optional sign, then `0` or one or more decimal numbers, each with its unit.
    fn from_str(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (part, after) = leading_part(rest, text)?;
            total = total
                .checked_add(part)
                .filter(|sum| *sum <= LIMIT)
                .ok_or_else(invalid)?;
            rest = after;
        }
        let magnitude = i128::from(total);
        i64::try_from(if negative { -magnitude } else { magnitude })
            .map(Self)
            .map_err(|_| invalid())
    }
}

/// Reads one number with its unit from the start of `rest`: returns its nanoseconds, and the rest.
fn leading_part<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, after) = digits(rest);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after_point) => digits(after_point),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = after
        .find(|next: char| next == '.' || next.is_ascii_digit())
        .unwrap_or(after.len());
    let (unit_name, after) = after.split_at(end);
    let whole: u64 = match whole {
        "" => 0,
        number => number.parse().map_err(|_| invalid())?,
    };
    if whole > LIMIT {
        return Err(invalid());
    }
    if unit_name.is_empty() {
        return Err(DurationError::MissingUnit(text.to_owned()));
    }
    let unit = unit(unit_name).ok_or_else(|| DurationError::UnknownUnit {
        unit: unit_name.to_owned(),
        text: text.to_owned(),
    })?;
    let nanos = whole
        .checked_mul(unit)
        .and_then(|nanos| nanos.checked_add(fraction_of(fraction, unit)))
        .filter(|nanos| *nanos <= LIMIT)
        .ok_or_else(invalid)?;
    Ok((nanos, after))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|next: char| !next.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Returns `0.FRACTION` of a unit, in whole nanoseconds. It uses floating point, as Go does, so that both round alike;
/// digits beyond 63 bits are ignored.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go's own arithmetic: at most one hour in nanoseconds, never negative"
)]
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes() {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
            .filter(|next| *next <= LIMIT)
        else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        // The micro sign, and the Greek letter that looks the same.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

/// Quotes as Go's package `time` does: bytes that are not printable ASCII in hexadecimal.
fn quote(text: &str) -> String {
    use fmt::Write;
    let mut quoted = String::new();
    quoted.push('"');
    for (number, character) in text.chars().enumerate() {
        if number == MAX_QUOTED {
            quoted.push_str("...");
            break;
        }
        if !(' '..'\u{80}').contains(&character) {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        } else {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
    }
    quoted.push('"');
    quoted
}

impl fmt::Display for GoDuration {
    /// Writes `1h0m0s`, `5m0s`, `1.5s`, `100ms`, `0s`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            formatter.write_str("-")?;
        }
        match nanos {
            0 => return formatter.write_str("0s"),
            1..1_000 => return write!(formatter, "{nanos}ns"),
            1_000..1_000_000 => return decimal(formatter, nanos, 3, "\u{b5}s"),
            1_000_000..SECOND => return decimal(formatter, nanos, 6, "ms"),
            _ => {}
        }
        let minutes = nanos / (60 * SECOND);
        if minutes >= 60 {
            write!(formatter, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(formatter, "{}m", minutes % 60)?;
        }
        decimal(formatter, nanos % (60 * SECOND), 9, "s")
    }
}

/// Writes `nanos` shifted right by that many decimal places, without trailing zeros, and a unit.
fn decimal(
    formatter: &mut fmt::Formatter<'_>,
    nanos: u64,
    places: usize,
    unit: &str,
) -> fmt::Result {
    let scale = (0..places).fold(1, |scale: u64, _| scale * 10);
    let (whole, fraction) = (nanos / scale, nanos % scale);
    let fraction = format!("{fraction:0places$}");
    match fraction.trim_end_matches('0') {
        "" => write!(formatter, "{whole}{unit}"),
        fraction => write!(formatter, "{whole}.{fraction}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_a_text_without_measure_the_beginning_is_quoted() {
        let long = "\u{202E}".repeat(300_000);
        for text in [long.clone(), format!("1{long}"), format!("1h{long}")] {
            let why = text.parse::<GoDuration>().unwrap_err().to_string();
            assert!(why.len() < 4_000, "{} bytes are said of it", why.len());
        }
        let why = "x".repeat(MAX_QUOTED).parse::<GoDuration>().unwrap_err();
        assert!(why.to_string().ends_with("xx\""), "{why}");
    }

    #[test]
    fn reads_what_go_reads() {
        const MINUTE: u64 = 60 * SECOND;
        const HOUR: u64 = 60 * MINUTE;
        // Many of these are from the tests of Go's own package.
        let cases: &[(&str, i128)] = &[
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("5s", i128::from(5 * SECOND)),
            ("30s", i128::from(30 * SECOND)),
            ("1478s", i128::from(1478 * SECOND)),
            ("-5s", -i128::from(5 * SECOND)),
            ("+5s", i128::from(5 * SECOND)),
            ("5.0s", i128::from(5 * SECOND)),
            ("5.6s", 5_600_000_000),
            ("5.s", i128::from(5 * SECOND)),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("1.00400s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("15m", i128::from(15 * MINUTE)),
            ("16h", i128::from(16 * HOUR)),
            ("3h30m", i128::from(3 * HOUR + 30 * MINUTE)),
            ("10.5s4m", i128::from(4 * MINUTE) + 10_500_000_000),
            ("-2m3.4s", -(i128::from(2 * MINUTE) + 3_400_000_000)),
            ("52763797000ns", 52_763_797_000),
            // The fraction is more than 63 bits.
            ("0.3333333333333333333h", i128::from(20 * MINUTE)),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("0.100000000000000000000h", i128::from(6 * MINUTE)),
            ("0.830103483285477580700h", 2_988_372_539_827),
            // The edges of the range.
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i128::from(i64::MAX)),
            ("9223372036854775.807us", i128::from(i64::MAX)),
            ("9223372036s854ms775us807ns", i128::from(i64::MAX)),
            ("-9223372036854775808ns", i128::from(i64::MIN)),
            ("-2562047h47m16.854775808s", i128::from(i64::MIN)),
        ];
        for (text, nanos) in cases {
            let read = text.parse::<GoDuration>();
            assert_eq!(
                read.map(|read| i128::from(read.as_nanos())),
                Ok(*nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_in_the_words_of_go() {
        let cases = [
            ("", r#"time: invalid duration """#),
            ("x", r#"time: invalid duration "x""#),
            ("-", r#"time: invalid duration "-""#),
            (".", r#"time: invalid duration ".""#),
            ("-.", r#"time: invalid duration "-.""#),
            (".s", r#"time: invalid duration ".s""#),
            ("+.s", r#"time: invalid duration "+.s""#),
            (" 1h", r#"time: invalid duration " 1h""#),
            ("1h-5m", r#"time: unknown unit "h-" in duration "1h-5m""#),
            ("--1h", r#"time: invalid duration "--1h""#),
            ("3", r#"time: missing unit in duration "3""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1h5", r#"time: missing unit in duration "1h5""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1H", r#"time: unknown unit "H" in duration "1H""#),
            ("1h ", r#"time: unknown unit "h " in duration "1h ""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            ("9999999h", r#"time: invalid duration "9999999h""#),
            (
                "9223372036854775808ns",
                r#"time: invalid duration "9223372036854775808ns""#,
            ),
            (
                "9223372036854775.808us",
                r#"time: invalid duration "9223372036854775.808us""#,
            ),
            (
                "-9223372036854775809ns",
                r#"time: invalid duration "-9223372036854775809ns""#,
            ),
            (
                "99999999999999999999999",
                r#"time: invalid duration "99999999999999999999999""#,
            ),
            ("\"\\h", r#"time: invalid duration "\"\\h""#),
            ("a\u{7}\u{e9}", r#"time: invalid duration "a\x07\xc3\xa9""#),
            (
                "1\u{20ac}",
                r#"time: unknown unit "\xe2\x82\xac" in duration "1\xe2\x82\xac""#,
            ),
        ];
        for (text, message) in cases {
            let error = text
                .parse::<GoDuration>()
                .map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn prints_as_go_prints() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (3_300_000_000, "3.3s"),
            (300_000_000_000, "5m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (86_400_000_000_000, "24h0m0s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (-1, "-1ns"),
            (-90_000_000_000, "-1m30s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(GoDuration::from_nanos(nanos).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn reads_back_what_it_prints(nanos: i64) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn reads_anything_without_failing_otherwise(text in "[-+]?[0-9.a-z\u{b5} ]{0,24}|.*") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
