//! `units.*`: errors and exact results as OPA's.

use regorus::Value;

use super::bounds::Excess;
use super::operand::{Answer, Failure, failed, text};

/// Implements `units.parse`.
pub(super) fn parse(values: &[Value]) -> Answer {
    let text = text(values, 0)?.replace('"', "");
    let (number, unit) = parts(&text)?;
    let mut letters = unit.chars();
    let unit = match letters.next() {
        Some(first) => format!("{first}{}", letters.as_str().to_lowercase()),
        None => String::new(),
    };
    let scale: i128 = match unit.as_str() {
        "m" => return decimal(number, 1, 3),
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1000_i128.pow(2),
        "g" | "G" => 1000_i128.pow(3),
        "t" | "T" => 1000_i128.pow(4),
        "p" | "P" => 1000_i128.pow(5),
        "e" | "E" => 1000_i128.pow(6),
        binary => match power_of_two(binary.strip_suffix('i').unwrap_or("?")) {
            Some(scale) => scale,
            None => return failed(format!("unit {unit} not recognized")),
        },
    };
    decimal(number, scale, 0)
}

/// Implements `units.parse_bytes`.
pub(super) fn parse_bytes(values: &[Value]) -> Answer {
    let text = text(values, 0)?.to_lowercase().replace('"', "");
    let (number, unit) = parts(&text)?;
    let scale: i128 = match unit {
        "" => 1,
        "kb" | "k" => 1000,
        "mb" | "m" => 1000_i128.pow(2),
        "gb" | "g" => 1000_i128.pow(3),
        "tb" | "t" => 1000_i128.pow(4),
        "pb" | "p" => 1000_i128.pow(5),
        "eb" | "e" => 1000_i128.pow(6),
        binary => {
            let letter = binary
                .strip_suffix("ib")
                .or_else(|| binary.strip_suffix('i'));
            match power_of_two(letter.unwrap_or("?")) {
                Some(scale) => scale,
                None => return failed(format!("byte unit {unit} not recognized")),
            }
        }
    };
    match decimal(number, scale, 0)? {
        Value::Number(number) if !number.is_integer() => {
            let whole = if number.is_positive() {
                number.floor()
            } else {
                number.ceil()
            };
            Ok(Value::from(whole))
        }
        whole => Ok(whole),
    }
}

fn power_of_two(letter: &str) -> Option<i128> {
    let at = ["k", "m", "g", "t", "p", "e"]
        .iter()
        .position(|known| letter.eq_ignore_ascii_case(known))?;
    Some(1 << (10 * (at + 1)))
}

/// Splits a text into its number and its unit.
fn parts(text: &str) -> Result<(&str, &str), Failure> {
    if text.contains(' ') {
        return failed("spaces not allowed in resource strings");
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' | b'.' | b'+' | b'-' => at += 1,
            b'e' | b'E' => match bytes.get(at + 1) {
                Some(b'0'..=b'9') => at += 1,
                Some(b'+' | b'-') => at += 2,
                _ => break,
            },
            _ => break,
        }
    }
    let (number, unit) = text.split_at(at);
    if number.is_empty() {
        return failed("no amount provided");
    }
    Ok((number, unit))
}

/// Multiplies a decimal number, exactly, and divides it by a power of ten.
fn decimal(text: &str, scale: i128, tenths: i32) -> Answer {
    let invalid = || Failure::Failed("could not parse amount to a number".to_owned());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| invalid())?;
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    let fraction = i32::try_from(fraction.len()).map_err(|_| invalid())?;
    let places = exponent.saturating_sub(fraction).saturating_sub(tenths);
    if digits.len() > 1024 || !(-1024..=1024).contains(&places) {
        return Err(Excess::Bits.into());
    }
    let number = |text: &str| Value::from_numeric_string(text).map_err(|_| invalid());
    let (Value::Number(digits), Value::Number(scale)) = (number(&digits)?, Value::from(scale))
    else {
        return Err(invalid());
    };
    let product = digits.mul(&scale).map_err(|_| invalid())?.format_decimal();
    let text = shifted(&product, places);
    number(&if negative { format!("-{text}") } else { text })
}

/// Moves the decimal point of a whole number; ten places remain, rounded.
fn shifted(digits: &str, places: i32) -> String {
    if places >= 0 {
        return format!("{digits}{}", "0".repeat(places.unsigned_abs() as usize));
    }
    let places = places.unsigned_abs() as usize;
    let digits = format!(
        "{}{digits}",
        "0".repeat((places + 1).saturating_sub(digits.len()))
    );
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return whole.to_owned();
    }
    format!("{whole}.{}", fraction.get(..10).unwrap_or(fraction))
}
