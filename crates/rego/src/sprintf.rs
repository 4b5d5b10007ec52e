//! `sprintf` of negative whole numbers: the interpreter writes their sign twice (`--5`). This module writes them as Go
//! would, and passes them on as text.

use std::sync::Arc;

use regorus::Value;

/// Returns the arguments of `sprintf`, with each negative whole number for `%d` as text for `%s`.
pub(crate) fn arguments(values: &[Value]) -> Option<Vec<Value>> {
    let [Value::String(format), Value::Array(items)] = values else {
        return None;
    };
    let mut items: Vec<Value> = items.to_vec();
    let mut written = String::with_capacity(format.len());
    let mut changed = false;
    let mut next = 0;
    let mut rest: &str = format;
    while let Some((before, after)) = rest.split_once('%') {
        written.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (width, verb) = after.split_at(end);
        if let Some(after) = verb.strip_prefix('%') {
            written.push_str("%%");
            rest = after;
            continue;
        }
        rest = &after[end + verb.chars().next().map_or(0, char::len_utf8)..];
        match items.get_mut(next) {
            Some(item) if verb.starts_with('d') && is_negative(item) => {
                *item = Value::String(padded(item, width).into());
                written.push_str("%s");
                changed = true;
            }
            _ => {
                written.push('%');
                written.push_str(&after[..after.len() - rest.len()]);
            }
        }
        next += 1;
    }
    written.push_str(rest);
    changed.then(|| {
        vec![
            Value::String(written.into()),
            Value::Array(Arc::new(items.into())),
        ]
    })
}

fn is_negative(value: &Value) -> bool {
    matches!(value, Value::Number(n) if n.is_integer() && !n.is_positive() && *n != 0_u64.into())
}

/// Returns a number with padding. A width includes the sign; zeros follow it, blanks precede it.
fn padded(value: &Value, width: &str) -> String {
    let digits = match value {
        Value::Number(number) => number.format_decimal(),
        _ => String::new(),
    };
    let digits = digits.trim_start_matches('-');
    let places: usize = width.parse().unwrap_or(0);
    let missing = places.saturating_sub(digits.len() + 1);
    if width.starts_with('0') {
        format!("-{}{digits}", "0".repeat(missing))
    } else {
        format!("{}-{digits}", " ".repeat(missing))
    }
}
