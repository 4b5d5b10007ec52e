//! The canonical encoding of a value, so that a verifier can compute its digest again: compact JSON, every object
//! sorted by key. It covers all fields that exist, not only those that this version knows: a field that a later version
//! adds is covered as well.

use oz_api::encode::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the canonical bytes of a value.
#[must_use]
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    write(value, &[], &mut bytes);
    bytes
}

/// Returns `sha256:` and the digest of an object for one purpose, without some of its fields.
#[must_use]
pub fn digest_without(purpose: &str, value: &Value, without: &[&str]) -> String {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend_from_slice(purpose.as_bytes());
    bytes.push(b'\n');
    write(value, without, &mut bytes);
    format!("sha256:{}", hex(&Sha256::digest(&bytes)))
}

fn write(value: &Value, without: &[&str], bytes: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            // Sorted here, not by the type of the map, which a feature of a dependency could change.
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            bytes.push(b'{');
            let mut first = true;
            for key in keys {
                if without.contains(&key.as_str()) {
                    continue;
                }
                if !first {
                    bytes.push(b',');
                }
                first = false;
                text(key, bytes);
                bytes.push(b':');
                if let Some(value) = fields.get(key) {
                    write(value, &[], bytes);
                }
            }
            bytes.push(b'}');
        }
        Value::Array(items) => {
            bytes.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    bytes.push(b',');
                }
                write(item, &[], bytes);
            }
            bytes.push(b']');
        }
        Value::String(string) => text(string, bytes),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            bytes.extend_from_slice(value.to_string().as_bytes());
        }
    }
}

fn text(string: &str, bytes: &mut Vec<u8>) {
    // A string always serialises into memory.
    let _ = serde_json::to_writer(bytes, string);
}
