//! `uuid.parse`: what the bits of a UUID say, as OPA says it.
//! See <https://www.rfc-editor.org/rfc/rfc9562#section-4>.

use std::collections::BTreeMap;

use regorus::Value;

use super::operand::{Answer, Failure, text};

/// The number of 100 ns between 15 October 1582 and 1970.
const EPOCH: i64 = 122_192_928_000_000_000;

/// Implements `uuid.parse`; undefined if the text is no UUID.
pub(super) fn parse(values: &[Value]) -> Answer {
    let bytes = bytes(text(values, 0)?).ok_or(Failure::Undefined)?;
    let version = bytes[6] >> 4;
    let variant = match bytes[8] {
        byte if byte & 0xc0 == 0x80 => "RFC4122",
        byte if byte & 0xe0 == 0xc0 => "Microsoft",
        byte if byte & 0xe0 == 0xe0 => "Future",
        _ => "Reserved",
    };
    let mut said: BTreeMap<Value, Value> = BTreeMap::new();
    let mut say = |key: &str, value: Value| said.insert(Value::from(key), value);
    say("version", Value::from(u64::from(version)));
    say("variant", Value::from(variant));
    if matches!(version, 1 | 2) {
        let node = &bytes[10..16];
        let digits: Vec<String> = node.iter().map(|byte| format!("{byte:02x}")).collect();
        say("time", Value::from(nanoseconds(&bytes)));
        say("nodeid", Value::from(digits.join("-")));
        say("macvariables", Value::from(address_kind(node[0])));
        let sequence = u16::from_be_bytes([bytes[8], bytes[9]]) & 0x3fff;
        say("clocksequence", Value::from(u64::from(sequence)));
        if version == 2 {
            let id = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            say("id", Value::from(u64::from(id)));
            say("domain", Value::from(domain(bytes[9])));
        }
    }
    Ok(Value::from(said))
}

/// Reads the forms of a UUID: plain, with `urn:uuid:`, within two characters, and 32 digits.
fn bytes(text: &str) -> Option<[u8; 16]> {
    let digits: String = match text.len() {
        36 => dashed(text)?,
        45 if text.get(..9)?.eq_ignore_ascii_case("urn:uuid:") => dashed(text.get(9..)?)?,
        38 => dashed(text.get(1..37)?)?,
        32 => text.to_owned(),
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some(number.to_be_bytes())
}

fn dashed(text: &str) -> Option<String> {
    let dashes = [8, 13, 18, 23];
    let bytes = text.as_bytes();
    if dashes.iter().any(|at| bytes.get(*at) != Some(&b'-')) {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    (digits.len() == 32).then_some(digits)
}

fn nanoseconds(bytes: &[u8; 16]) -> i64 {
    let low = i64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let middle = i64::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    let high = i64::from(u16::from_be_bytes([bytes[6], bytes[7]]) & 0xfff);
    let ticks = low | middle << 32 | high << 48;
    ticks.wrapping_sub(EPOCH).wrapping_mul(100)
}

fn address_kind(byte: u8) -> &'static str {
    match byte & 3 {
        3 => "local:multicast",
        1 => "global:multicast",
        2 => "local:unicast",
        _ => "global:unicast",
    }
}

fn domain(byte: u8) -> String {
    match byte {
        0 => "Person".to_owned(),
        1 => "Group".to_owned(),
        2 => "Org".to_owned(),
        other => format!("Domain{other}"),
    }
}
