//! Numbers as texts, as Go's package `strconv` writes them.
//! See <https://pkg.go.dev/strconv>.

/// Writes a number that is not negative as `d.dde±dd`; without a precision with as many digits as are necessary.
pub(super) fn scientific(number: f64, precision: Option<usize>) -> String {
    let text = match precision {
        Some(precision) => format!("{number:.precision$e}"),
        None => format!("{number:e}"),
    };
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Writes a number that is not negative with an exponent if the number is small or large, else without.
pub(super) fn general(number: f64, precision: Option<usize>, sharp: bool) -> String {
    if number == 0.0 {
        return match (precision, sharp) {
            (precision, true) => format!("{number:.*}", precision.unwrap_or(6).max(1) - 1),
            _ => "0".to_owned(),
        };
    }
    let digits = precision.map(|precision| precision.max(1));
    let short = scientific(number, digits.map(|digits| digits - 1));
    let Some((mantissa, exponent)) = short.split_once('e') else {
        return short;
    };
    let exponent_of: i32 = exponent.parse().unwrap_or(0);
    let limit = digits.map_or(6, |digits| i32::try_from(digits).unwrap_or(i32::MAX));
    if exponent_of < -4 || exponent_of >= limit {
        let trim = precision.is_some() && !sharp;
        let mantissa = if trim { trimmed(mantissa) } else { mantissa };
        return format!("{mantissa}e{exponent}");
    }
    match digits {
        None => format!("{number}"),
        Some(digits) => {
            let places = i32::try_from(digits).unwrap_or(i32::MAX) - 1 - exponent_of;
            let text = format!("{number:.*}", usize::try_from(places).unwrap_or(0));
            let trimmed = trimmed(&text);
            if sharp { text } else { trimmed.to_owned() }
        }
    }
}

/// Removes zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}
