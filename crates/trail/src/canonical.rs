//! One encoding for one value, so that a digest can be computed again from what was read back:
//! compact JSON, every object sorted by key. Over what is there, not over what this version knows:
//! a field that a later version adds is covered as well.

use oz_api::encode::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical bytes of a value.
#[must_use]
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    write(value, &[], &mut bytes);
    bytes
}

/// `sha256:` and the digest of an object for one purpose, without some of its fields.
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
            // Sorted here and not by the map's type, which a feature of a dependency could change.
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
    // Into memory, strings always serialise.
    let _ = serde_json::to_writer(bytes, string);
}
