//! `yaml.marshal`: YAML as OPA writes it, with the encoder of Go's `yaml.v3` and an indentation of two blanks. A text
//! is written without quotes if a parser would read the same text.
//! See <https://yaml.org/spec/1.2.2/#chapter-7-flow-style-productions>.

use std::cmp::Ordering;
use std::fmt::Write as _;

use regorus::Value;

use super::float;
use super::operand::{Answer, Failure, bounded};
use super::plain::plain;
use super::time;

/// The maximum length of a key before a colon, in bytes.
const MAX_KEY: usize = 128;

/// Implements `yaml.marshal`.
pub(super) fn marshal(values: &[Value]) -> Answer {
    let Some(value) = values.first() else {
        return Err(Failure::Undefined);
    };
    let mut out = String::new();
    write(&plain(value), 0, false, &mut out);
    bounded(out)
}

/// Writes a value in lines; `after` is true behind an indicator such as `- `, where its first line has begun.
fn write(value: &Value, indent: usize, after: bool, out: &mut String) {
    let begin = |at: usize, out: &mut String| {
        if !after || at > 0 {
            out.push_str(&" ".repeat(indent));
        }
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                begin(at, out);
                out.push_str("- ");
                write(item, indent + 2, true, out);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<(&str, &Value)> = fields
                .iter_sorted()
                .filter_map(|(key, value)| match key {
                    Value::String(key) => Some((&**key, value)),
                    _ => None,
                })
                .collect();
            fields.sort_by(|(one, _), (other, _)| by_number(one, other));
            for (at, (key, value)) in fields.into_iter().enumerate() {
                begin(at, out);
                field(key, value, indent, out);
            }
        }
        Value::String(text) => {
            scalar(text, indent, out);
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
        Value::Array(_) => out.push_str("[]\n"),
        Value::Object(_) => out.push_str("{}\n"),
        other => {
            out.push_str(&number_or_name(other));
            out.push('\n');
        }
    }
}

/// Writes a field: with a key before a colon, or behind a question mark if the key is long or has several lines.
fn field(key: &str, value: &Value, indent: usize, out: &mut String) {
    if key.len() > MAX_KEY || key.contains('\n') {
        out.push_str("? ");
        write(&Value::from(key), indent + 2, true, out);
        out.push_str(&" ".repeat(indent));
        out.push_str(": ");
        return write(value, indent + 2, true, out);
    }
    scalar(key, indent, out);
    out.push(':');
    let is_nested = match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    out.push(if is_nested { '\n' } else { ' ' });
    write(value, indent + 2, !is_nested, out);
}

fn number_or_name(value: &Value) -> String {
    match value {
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => whole.to_string(),
            (None, Some(whole), _) => whole.to_string(),
            (None, None, Some(float)) => {
                let sign = if float < 0.0 { "-" } else { "" };
                format!("{sign}{}", float::general(float.abs(), None, false))
            }
            (None, None, None) => number.format_decimal(),
        },
        _ => "null".to_owned(),
    }
}

/// Writes a text in the style that fits.
fn scalar(text: &str, indent: usize, out: &mut String) {
    let found = Analysis::from_text(text);
    if text.contains('\n') && found.block {
        literal(text, indent.max(2), out);
    } else if text.contains('\n') || found.double || is_another_type(text) {
        double_quoted(text, out);
    } else if found.bare {
        out.push_str(text);
    } else {
        let _ = write!(out, "'{}'", text.replace('\'', "''"));
    }
}

/// The styles that fit a text.
struct Analysis {
    /// The text needs no quotes.
    bare: bool,
    /// The text requires double quotes, unless it is a block.
    double: bool,
    /// The text can be a block of lines.
    block: bool,
}

impl Analysis {
    fn from_text(text: &str) -> Self {
        let is_special = |c: char| c != '\n' && c != '\t' && !is_printable(c);
        let special = text.contains(is_special) || text.contains(" \n");
        let is_space = |c: char| matches!(c, ' ' | '\n' | '\u{2028}' | '\u{2029}');
        let has_margin = text.starts_with(is_space) || text.ends_with(is_space);
        let bare = !special && !has_margin && !text.contains(['\n', '\t']) && !has_indicator(text);
        Self {
            bare,
            double: special || text.contains('\t') || text.contains("\n "),
            block: !special && !text.ends_with(' '),
        }
    }
}

/// Checks whether a text without quotes would be a part of YAML's structure.
fn has_indicator(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let mut before = true;
    let mut chars = text.chars().peekable();
    let mut is_first = true;
    while let Some(c) = chars.next() {
        let ends = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
        let is_indicator = match c {
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
            | '@' | '`'
                if is_first =>
            {
                true
            }
            '?' | '-' if is_first => ends,
            ':' => ends,
            '#' => before,
            _ => false,
        };
        if is_indicator {
            return true;
        }
        before = matches!(
            c,
            ' ' | '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        is_first = false;
    }
    false
}

/// Checks whether the encoder writes a character as it is. It escapes all characters beyond 16 bits.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Writes a text as a block of lines.
fn literal(text: &str, indent: usize, out: &mut String) {
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    match text.strip_suffix('\n') {
        None => out.push('-'),
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => out.push('+'),
        Some(_) => {}
    }
    out.push('\n');
    for line in text.split_inclusive('\n') {
        if line != "\n" {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(line);
    }
}

fn double_quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let escaped = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\0' => "\\0",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            '\u{1b}' => "\\e",
            '\u{85}' => "\\N",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            c if is_printable(c) => {
                out.push(c);
                continue;
            }
            c => {
                let _ = match c as u32 {
                    code @ ..=0xff => write!(out, "\\x{code:02X}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04X}"),
                    code => write!(out, "\\U{code:08X}"),
                };
                continue;
            }
        };
        out.push_str(escaped);
    }
    out.push('"');
}

/// Checks whether YAML reads a text without quotes as a value of another type, also in its version 1.1.
fn is_another_type(text: &str) -> bool {
    const NAMES: [&str; 40] = [
        "", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", ".nan",
        ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf",
        "-.INF", "<<", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO",
        "off", "Off", "OFF",
    ];
    NAMES.contains(&text)
        || match text.chars().next() {
            Some('.') => is_decimal(text),
            Some('+' | '-' | '0'..='9') => is_number(text) || is_timestamp(text),
            _ => false,
        }
}

fn is_number(text: &str) -> bool {
    let joined = text.replace('_', "");
    let unsigned = joined.trim_start_matches(['+', '-']);
    if joined.len() > unsigned.len() + 1 {
        return false;
    }
    let digits_of = |prefixes: [&str; 2]| {
        let digits = prefixes
            .iter()
            .find_map(|prefix| unsigned.strip_prefix(prefix));
        digits.filter(|digits| !digits.starts_with(['+', '-']))
    };
    let fits = |prefixes, base| {
        let digits = digits_of(prefixes);
        digits.is_some_and(|digits| u64::from_str_radix(digits, base).is_ok())
    };
    is_decimal(unsigned)
        || fits(["0x", "0X"], 16)
        || fits(["0o", "0O"], 8)
        || fits(["0b", "0B"], 2)
        || is_sexagesimal(text.trim_start_matches(['+', '-']))
}

/// Checks whether a text is a decimal number without a sign, which is not too large.
fn is_decimal(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.chars().all(is_part)
        && text.parse().is_ok_and(f64::is_finite)
}

/// Checks whether a text is a number to the base 60, as in YAML 1.1: `1:20`.
fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or(text);
    let is_digit = |c: char| c.is_ascii_digit() || c == '_';
    let others: Vec<&str> = parts.collect();
    let Some((last, middle)) = others.split_last() else {
        return false;
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let is_minute = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || (part.len() == 2 && part < "60"))
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.chars().all(is_digit)
        && middle.iter().chain([&last]).all(|part| is_minute(part))
        && fraction.chars().all(is_digit)
}

fn is_timestamp(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let layouts = [
        "2006-1-2T15:4:5.999999999Z07:00",
        "2006-1-2t15:4:5.999999999Z07:00",
        "2006-1-2 15:4:5.999999999",
        "2006-1-2",
    ];
    digits == 4
        && text[4..].starts_with('-')
        && layouts.iter().any(|layout| time::is_time(layout, text))
}

/// Compares keys: numbers in them by their values, and letters after all others.
fn by_number(one: &str, other: &str) -> Ordering {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (Some(a), Some(b)) = (one.get(same), other.get(same)) else {
        return one.len().cmp(&other.len());
    };
    match (a.is_alphabetic(), b.is_alphabetic()) {
        (true, true) => return a.cmp(b),
        (false, false) => {}
        (is_letter, _) => {
            let after_digit = same > 0 && one[same - 1].is_numeric();
            return match is_letter == after_digit {
                true => Ordering::Less,
                false => Ordering::Greater,
            };
        }
    }
    let digits = |text: &[char]| -> Vec<char> {
        let digits = text[same..].iter().take_while(|c| c.is_ascii_digit());
        digits.copied().collect()
    };
    let (a_digits, b_digits) = (digits(&one), digits(&other));
    let before = one[..same].iter().rev().take_while(|c| c.is_ascii_digit());
    let continues = (*a == '0' || *b == '0') && before.clone().any(|c| *c != '0');
    let value = |digits: &[char]| {
        let digits: String = digits.iter().collect();
        let digits = digits.trim_start_matches('0');
        (digits.len(), digits.to_owned())
    };
    let by_value = match continues {
        // The digits go on a number that both have.
        true => a_digits
            .len()
            .cmp(&b_digits.len())
            .then(a_digits.cmp(&b_digits)),
        false => value(&a_digits).cmp(&value(&b_digits)),
    };
    by_value
        .then(a_digits.len().cmp(&b_digits.len()))
        .then(a.cmp(b))
}
