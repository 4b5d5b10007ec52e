//! Functions of texts.

use regorus::Value;

use super::bounds::{Excess, MAX_TEXT};
use super::operand::{Answer, bounded, failed, fields, integer, text};

/// Implements `strings.count`: an empty text is found before each character and at the end.
pub(super) fn count(values: &[Value]) -> Answer {
    let (text, part) = (text(values, 0)?, text(values, 1)?);
    let count = if part.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(part).count()
    };
    Ok(Value::from(count))
}

/// Implements `strings.replace_n`: at each place the first key, in their order, is replaced; replaced text is not
/// read again.
pub(super) fn replace_many(values: &[Value]) -> Answer {
    let patterns = fields(values, 0)?;
    let text = text(values, 1)?;
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (key, value) in &patterns {
        match (key, value) {
            (Value::String(key), Value::String(value)) => pairs.push((key, value)),
            (Value::String(_), _) => {
                return failed("operand 1 non-string value found in pattern object");
            }
            _ => return failed("operand 1 non-string key found in pattern object"),
        }
    }
    let mut written: Vec<u8> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut after_empty = false;
    while at <= bytes.len() {
        let rest = &bytes[at..];
        let found = pairs
            .iter()
            .find(|(key, _)| rest.starts_with(key.as_bytes()) && !(key.is_empty() && after_empty));
        after_empty = found.is_some_and(|(key, _)| key.is_empty());
        match found {
            Some((key, value)) => {
                written.extend_from_slice(value.as_bytes());
                at += key.len();
            }
            None => {
                written.extend(rest.first());
                at += 1;
            }
        }
        if written.len() > MAX_TEXT {
            return Err(Excess::Text.into());
        }
    }
    bounded(String::from_utf8_lossy(&written).into_owned())
}

/// Implements `strings.split_n`: the first parts, or the last ones if the number is negative.
pub(super) fn split_some(values: &[Value]) -> Answer {
    let (text, delimiter) = (text(values, 0)?, text(values, 1)?);
    let wanted = integer(values, 2)?;
    let count = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
    let parts: Vec<&str> = if wanted < 0 {
        let parts = split(text, delimiter, usize::MAX);
        let start = parts.len().saturating_sub(count);
        parts[start..].to_vec()
    } else {
        let mut parts = split(text, delimiter, count.saturating_add(1));
        parts.truncate(count);
        parts
    };
    if parts.len() > super::bounds::MAX_ITEMS {
        return Err(Excess::Elements.into());
    }
    Ok(super::operand::text_array(parts))
}

/// Splits a text into at most `limit` parts; with an empty delimiter into characters.
fn split<'a>(text: &'a str, delimiter: &str, limit: usize) -> Vec<&'a str> {
    if !delimiter.is_empty() {
        return text.splitn(limit, delimiter).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 >= limit {
            parts.push(rest);
            return parts;
        }
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(part);
        rest = after;
    }
    parts
}

/// Implements `upper`: one character for each, as Go's.
pub(super) fn upper(values: &[Value]) -> Answer {
    let text = text(values, 0)?;
    bounded(text.chars().map(|c| single(c, c.to_uppercase())).collect())
}

/// Implements `lower`: one character for each, as Go's.
pub(super) fn lower(values: &[Value]) -> Answer {
    let text = text(values, 0)?;
    let lower = |c: char| match c {
        'İ' => 'i',
        _ => single(c, c.to_lowercase()),
    };
    bounded(text.chars().map(lower).collect())
}

/// Returns the character that replaces another, or the same one if several would replace it.
fn single(c: char, mut replacement: impl Iterator<Item = char>) -> char {
    match (replacement.next(), replacement.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}
