//! Numbers in schemas: as texts, and whether one is a multiple of another.

use regorus::Value;

use super::super::float;

/// Checks whether a number has no fraction.
pub(super) fn is_whole(value: &Value) -> bool {
    matches!(value, Value::Number(number) if number.is_integer())
}

/// Writes a number as Go writes one of its floats.
pub(super) fn written(value: &Value) -> String {
    let Ok(float) = value.as_f64() else {
        return value.to_string();
    };
    let sign = if float < 0.0 { "-" } else { "" };
    format!("{sign}{}", float::general(float.abs(), None, false))
}

/// Checks whether a number is a multiple of another that is greater than 0, as decimals: 0.3 is a multiple of 0.1.
pub(super) fn is_multiple(value: &Value, of: &Value) -> bool {
    let exact = decimal(value).zip(decimal(of));
    exact.and_then(|(value, of)| has_no_rest(value, of)) == Some(true)
}

/// Checks whether a division has no rest; `None` if the numbers have too many digits.
fn has_no_rest((digits, exponent): (i128, i32), (of, of_exponent): (i128, i32)) -> Option<bool> {
    if exponent < of_exponent {
        let factor = u32::try_from(of_exponent - exponent).ok();
        let factor = factor.and_then(|factor| 10_i128.checked_pow(factor));
        let scaled = factor.and_then(|factor| of.checked_mul(factor));
        // A number that does not fit is greater than the value.
        return Some(scaled.map_or(digits == 0, |of| digits % of == 0));
    }
    let mut rest = digits.checked_rem(of)?;
    for _ in of_exponent..exponent {
        rest = rest.checked_mul(10)?.checked_rem(of)?;
    }
    Some(rest == 0)
}

/// Returns a number as digits and an exponent of ten.
fn decimal(value: &Value) -> Option<(i128, i32)> {
    let Value::Number(number) = value else {
        return None;
    };
    if let Some(whole) = number.as_i128() {
        return Some((whole, 0));
    }
    let text = format!("{:e}", number.as_f64()?);
    let (digits, exponent) = text.split_once('e')?;
    let fraction = digits.split_once('.').map_or(0, |(_, places)| places.len());
    let digits: i128 = digits.replace('.', "").parse().ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    Some((digits, exponent - i32::try_from(fraction).ok()?))
}

/// Checks whether a number is greater than 0.
pub(super) fn is_positive(value: &Value) -> bool {
    *value > Value::from(0_i64)
}
