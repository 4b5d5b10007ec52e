//! `time.parse_duration_ns`: durations of Go, with days, weeks and years of 365 days.
//! See <https://pkg.go.dev/time#ParseDuration>.

use regorus::Value;

use super::super::operand::{Answer, Failure, text};

const HOUR: u64 = 3_600_000_000_000;

/// Implements `time.parse_duration_ns`.
pub(in super::super) fn parse_duration(values: &[Value]) -> Answer {
    let text = text(values, 0)?;
    let invalid = || Failure::Failed(format!("time: invalid duration {text:?}"));
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Value::from(0_i64));
    }
    let nanoseconds = sum(rest).ok_or_else(invalid)?;
    let limit = u64::MAX / 2 + u64::from(negative);
    if nanoseconds > limit {
        return Err(invalid());
    }
    let nanoseconds = i128::from(nanoseconds);
    Ok(Value::from(if negative {
        -nanoseconds
    } else {
        nanoseconds
    }))
}

fn sum(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    // Go does not accept a sum of a fraction of these units that is not exact; hours hold them.
    let mut rest = text;
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let whole_len = digits(rest);
        let (whole, after) = rest.split_at(whole_len);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_len = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let unit = scale(unit)?;
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        sum = sum.checked_add(whole.checked_mul(unit)?)?;
        if let Some(part) = part(fraction, unit) {
            sum = sum.checked_add(part)?;
        }
        if sum > 1 << 63 {
            return None;
        }
        rest = after;
    }
    Some(sum)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Returns a fraction of a unit; digits that make no difference are ignored.
fn part(fraction: &str, unit: u64) -> Option<u64> {
    let fraction = fraction.get(..fraction.len().min(18))?;
    let digits: u128 = fraction.parse().ok()?;
    let power = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    u64::try_from(digits * u128::from(unit) / power).ok()
}

fn scale(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => HOUR,
        "d" => 24 * HOUR,
        "w" => 7 * 24 * HOUR,
        "y" => 365 * 24 * HOUR,
        _ => return None,
    })
}
