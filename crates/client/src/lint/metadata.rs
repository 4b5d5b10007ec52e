//! The requirements of the API server for the metadata of every object: a valid name.

use oz_core::validate::{self, REQUEST_METADATA, TEMPLATE_METADATA};
use serde_json::Value;

use super::found::Found;

const LONGEST_NAME: usize = 253;
const LONGEST_NAMESPACE: usize = 63;

/// Checks the metadata of an object.
pub(super) fn check(object: &Value, found: &mut Found) {
    let metadata = &object["metadata"];
    let mut add = |field: &str, message: &str| {
        found.push(("schema", format!("metadata.{field}"), message.to_owned()));
    };
    let given = |field: &str| match &metadata[field] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        value => Some(value),
    };
    match (given("name"), given("generateName")) {
        (Some(name), _) if !name.as_str().is_some_and(is_name) => add("name", NAME),
        (None, Some(prefix)) if !prefix.as_str().is_some_and(is_prefix) => {
            add("generateName", PREFIX);
        }
        (None, None) => add("name", "is required, or else metadata.generateName"),
        _ => {}
    }
    let namespace = given("namespace");
    if namespace.is_some_and(|namespace| !namespace.as_str().is_some_and(is_namespace)) {
        add("namespace", NAMESPACE);
    }
    bounded(object, found);
}

/// Checks the webhook's limits on numbers and bytes.
fn bounded(object: &Value, found: &mut Found) {
    let Ok(metadata) = serde_json::from_value(object["metadata"].clone()) else {
        return;
    };
    let kind = object["kind"].as_str();
    let bounds = if kind.is_some_and(|kind| kind.ends_with("Template")) {
        TEMPLATE_METADATA
    } else {
        REQUEST_METADATA
    };
    let violations = validate::metadata(&metadata, None, &bounds);
    found.extend(
        violations
            .into_iter()
            .map(|one| ("metadata", one.field, one.message)),
    );
}

const NAME: &str = "must be of a-z, 0-9, - and ., each part with a letter or digit at both ends, at \
                    most 253 characters";
const PREFIX: &str = "must be what a name of a-z, 0-9, - and . may begin with";
const NAMESPACE: &str = "must be of a-z, 0-9 and -, with a letter or digit at both ends, at most 63 \
                         characters";

/// Checks whether a text is a subdomain by RFC 1123, see
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>.
fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

/// Checks whether a text is the prefix of a name: the API server appends letters to it.
fn is_prefix(text: &str) -> bool {
    is_name(&format!("{}a", text.trim_end_matches('-')))
}

fn is_namespace(text: &str) -> bool {
    text.len() <= LONGEST_NAMESPACE && is_label(text)
}

fn is_label(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.iter().all(|end| end.is_some_and(letter))
        && text.bytes().all(|byte| letter(byte) || byte == b'-')
}
