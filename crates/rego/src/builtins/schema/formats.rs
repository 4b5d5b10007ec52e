//! `format`: the formats that OPA checks. A value that is no text has every format, and so does a text if the format is
//! unknown.

use std::net::IpAddr;

use super::super::{pattern, time, uri};

/// Checks whether a text has a format.
pub(super) fn is_format(format: &str, text: &str) -> bool {
    let is_ip = || text.parse::<IpAddr>().is_ok();
    match format {
        "date" => time::is_time("2006-01-02", text),
        "time" => is_time_of_day(text),
        "date-time" => {
            is_time_of_day(text)
                || time::is_time("2006-01-02", text)
                || time::is_time("2006-01-02T15:04:05Z07:00", text)
        }
        "hostname" => text.len() < 256 && text.split('.').all(is_label),
        "email" | "idn-email" => is_mailbox(text),
        "ipv4" => is_ip() && text.contains('.'),
        "ipv6" => is_ip() && text.contains(':'),
        "uri" | "iri" => reference(text).is_some_and(|(scheme, _)| !scheme.is_empty()),
        "uri-reference" | "iri-reference" => reference(text).is_some(),
        "uri-template" => reference(text).is_some_and(|(_, path)| is_template(&path)),
        "uuid" => is_uuid(text),
        "regex" => text.is_empty() || pattern::compile(text).is_ok(),
        "json-pointer" => is_pointer(text),
        "relative-json-pointer" => is_relative_pointer(text),
        _ => true,
    }
}

fn is_time_of_day(text: &str) -> bool {
    time::is_time("15:04:05", text) || time::is_time("15:04:05Z07:00", text)
}

/// Returns the scheme and the path of a reference.
fn reference(text: &str) -> Option<(String, String)> {
    uri::scheme_and_path(text).filter(|_| !text.contains('\\'))
}

fn is_label(label: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    label.len() <= 63
        && label.starts_with(ends)
        && label.ends_with(ends)
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Checks whether each opening brace has a closing one behind it.
fn is_template(path: &str) -> bool {
    let mut rest = path;
    while let Some((_, after)) = rest.split_once('{') {
        match after.split_once('}') {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(is_hex)
}

fn is_pointer(text: &str) -> bool {
    let is_escaped = |part: &str| {
        let mut behind = part.split('~').skip(1);
        behind.all(|rest| rest.starts_with(['0', '1']))
    };
    text.is_empty() || (text.starts_with('/') && is_escaped(text))
}

fn is_relative_pointer(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let is_number = number == "0" || (!number.is_empty() && !number.starts_with('0'));
    is_number && (rest == "#" || is_pointer(rest))
}

/// Checks whether a text is an address of mail, with or without a name before it.
/// See <https://www.rfc-editor.org/rfc/rfc5322#section-3.4>.
fn is_mailbox(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    match text
        .strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
    {
        None => is_address(text),
        Some((name, address)) => {
            let name = name.trim_matches([' ', '\t']);
            let words = || name.split([' ', '\t']).filter(|word| !word.is_empty());
            let is_word = |word: &str| word.chars().all(|c| is_atom(c) || c == '.');
            is_address(address) && (is_quoted(name) || words().all(is_word))
        }
    }
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let is_literal = domain
        .strip_prefix('[')
        .and_then(|domain| domain.strip_suffix(']'))
        .is_some_and(|literal| {
            let address = literal.strip_prefix("IPv6:").unwrap_or(literal);
            address.parse::<IpAddr>().is_ok()
        });
    (is_dot_atom(local) || (local.len() > 2 && is_quoted(local)))
        && (is_dot_atom(domain) || is_literal)
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.')
        .all(|atom| !atom.is_empty() && atom.chars().all(is_atom))
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

fn is_quoted(text: &str) -> bool {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else {
        return false;
    };
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let is_allowed = match c {
            '\\' => chars.next().is_some(),
            '"' => false,
            c => !c.is_control() || c == '\t',
        };
        if !is_allowed {
            return false;
        }
    }
    true
}
