//! `regex.*`.

use regex::Regex;
use regorus::Value;

use super::bounds::{Excess, MAX_ITEMS, MAX_TEXT};
use super::operand::{Answer, Failure, bounded, failed, integer, text, text_array};
use super::pattern::{build, compile};

/// Implements `regex.is_valid`.
pub(super) fn is_valid(values: &[Value]) -> Answer {
    let valid = text(values, 0).is_ok_and(|pattern| compile(pattern).is_ok());
    Ok(Value::from(valid))
}

/// Implements `regex.match`, and `re_match`, which OPA had before 1.0.
pub(super) fn is_match(values: &[Value]) -> Answer {
    let (pattern, value) = (text(values, 0)?, text(values, 1)?);
    Ok(Value::from(compile(pattern)?.is_match(value)))
}

/// Implements `regex.split`.
pub(super) fn split(values: &[Value]) -> Answer {
    let (pattern, value) = (text(values, 0)?, text(values, 1)?);
    let regex = compile(pattern)?;
    if value.is_empty() && !pattern.is_empty() {
        return Ok(text_array([""]));
    }
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for found in regex.find_iter(value) {
        end = found.start();
        if found.end() != 0 {
            parts.push(&value[begin..end]);
        }
        begin = found.end();
        few(parts.len())?;
    }
    if end != value.len() {
        parts.push(&value[begin..]);
    }
    Ok(text_array(parts))
}

fn few(count: usize) -> Result<(), Failure> {
    if count > MAX_ITEMS {
        return Err(Excess::Elements.into());
    }
    Ok(())
}

/// Returns the number of matches that are wanted: all of them, if it is negative.
fn wanted(values: &[Value], at: usize) -> Result<usize, Failure> {
    Ok(usize::try_from(integer(values, at)?).unwrap_or(MAX_ITEMS + 1))
}

/// Implements `regex.find_n`.
pub(super) fn find_n(values: &[Value]) -> Answer {
    let (pattern, value) = (text(values, 0)?, text(values, 1)?);
    let regex = compile(pattern)?;
    let found = regex.find_iter(value).take(wanted(values, 2)?);
    let found: Vec<&str> = found.map(|found| found.as_str()).collect();
    few(found.len())?;
    Ok(text_array(found))
}

/// Implements `regex.find_all_string_submatch_n`.
pub(super) fn find_all(values: &[Value]) -> Answer {
    let (pattern, value) = (text(values, 0)?, text(values, 1)?);
    let regex = compile(pattern)?;
    let mut all = Vec::new();
    let mut count = 0;
    for captures in regex.captures_iter(value).take(wanted(values, 2)?) {
        count += captures.len();
        few(count)?;
        let groups = captures
            .iter()
            .map(|group| group.map_or("", |group| group.as_str()));
        all.push(text_array(groups));
    }
    Ok(Value::from(all))
}

/// Implements `regex.replace`.
pub(super) fn replace(values: &[Value]) -> Answer {
    let (value, pattern, with) = (text(values, 0)?, text(values, 1)?, text(values, 2)?);
    let regex = compile(pattern)?;
    let mut out = String::new();
    let mut last = 0;
    for captures in regex.captures_iter(value) {
        let Some(whole) = captures.get(0) else {
            continue;
        };
        out.push_str(&value[last..whole.start()]);
        captures.expand(with, &mut out);
        last = whole.end();
        if out.len() > MAX_TEXT {
            return Err(Excess::Text.into());
        }
    }
    out.push_str(&value[last..]);
    bounded(out)
}

/// Implements `regex.template_match`: the parts between the delimiters are patterns, and the others are text.
pub(super) fn template_match(values: &[Value]) -> Answer {
    let (template, value) = (text(values, 0)?, text(values, 1)?);
    let (open, close) = (delimiter(values, 2)?, delimiter(values, 3)?);
    Ok(Value::from(
        template_regex(template, open, close)?.is_match(value),
    ))
}

fn delimiter(values: &[Value], at: usize) -> Result<char, Failure> {
    let mut chars = text(values, at)?.chars();
    match (chars.next(), chars.next()) {
        (Some(one), None) => Ok(one),
        _ => failed("start or end delimiter is not exactly one character long"),
    }
}

fn template_regex(template: &str, open: char, close: char) -> Result<Regex, Failure> {
    let mut pattern = String::from("^");
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in template.char_indices() {
        if c == open {
            if depth == 0 {
                pattern.push_str(&regex::escape(&template[start..at]));
                start = at + c.len_utf8();
            }
            depth += 1;
        } else if c == close {
            depth = depth.checked_sub(1).ok_or_else(|| unbalanced(template))?;
            if depth == 0 {
                let part = compile(&template[start..at])?;
                pattern.push_str(&format!("({})", part.as_str()));
                start = at + c.len_utf8();
            }
        }
    }
    if depth > 0 {
        return Err(unbalanced(template));
    }
    pattern.push_str(&regex::escape(&template[start..]));
    pattern.push('$');
    build(&pattern)
}

fn unbalanced(template: &str) -> Failure {
    Failure::Failed(format!("mux: unbalanced braces in {template:?}"))
}
