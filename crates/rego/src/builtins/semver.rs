//! `semver.*`: versions as OPA reads them, with a `v` in front or without.
//! See <https://semver.org/>.

use std::cmp::Ordering;

use regorus::Value;

use super::operand::{Answer, Failure, failed, text};

struct Version<'a> {
    numbers: [i64; 3],
    pre_release: &'a str,
}

/// Implements `semver.is_valid`.
pub(super) fn is_valid(values: &[Value]) -> Answer {
    let valid = text(values, 0).is_ok_and(|text| parse(text).is_some());
    Ok(Value::from(valid))
}

/// Implements `semver.compare`.
pub(super) fn compare(values: &[Value]) -> Answer {
    let (a, b) = (version(values, 0)?, version(values, 1)?);
    let order = a.numbers.cmp(&b.numbers);
    let order = order.then_with(|| compare_pre_releases(a.pre_release, b.pre_release));
    Ok(Value::from(order as i64))
}

fn version(values: &[Value], at: usize) -> Result<Version<'_>, Failure> {
    let text = text(values, at)?;
    match parse(text) {
        Some(version) => Ok(version),
        None => failed(format!(
            "operand {}: string {text} is not a valid SemVer",
            at + 1
        )),
    }
}

fn parse(text: &str) -> Option<Version<'_>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = match text.split_once('+') {
        Some((text, metadata)) if is_identifier(metadata) => text,
        Some(_) => return None,
        None => text,
    };
    let (text, pre_release) = match text.split_once('-') {
        Some((text, pre)) if is_identifier(pre) && pre.split('.').all(no_zero_in_front) => {
            (text, pre)
        }
        Some(_) => return None,
        None => (text, ""),
    };
    let numbers: Option<Vec<i64>> = text.split('.').map(number).collect();
    Some(Version {
        numbers: numbers?.try_into().ok()?,
        pre_release,
    })
}

fn is_identifier(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(is_part))
}

fn no_zero_in_front(part: &str) -> bool {
    part.len() == 1 || !part.starts_with('0') || !is_digits(part)
}

fn number(text: &str) -> Option<i64> {
    if !is_digits(text) || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares pre-releases; a version without one is later.
fn compare_pre_releases(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (is_digits(a), is_digits(b)) {
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => saturated(a).cmp(&saturated(b)),
                (false, false) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn saturated(digits: &str) -> i64 {
    digits.parse().unwrap_or(i64::MAX)
}
