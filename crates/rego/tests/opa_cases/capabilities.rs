//! The capabilities, compared with those of OPA.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fetch;

fn by_name(capabilities: &Value) -> BTreeMap<&str, &Value> {
    let builtins = capabilities["builtins"].as_array().unwrap();
    let named = builtins
        .iter()
        .map(|builtin| (builtin["name"].as_str().unwrap(), builtin));
    named.collect()
}

/// Returns a declaration in which a union of one type is that type.
fn plain(declaration: &Value) -> Value {
    match declaration {
        Value::Object(fields) => match fields.get("of").and_then(Value::as_array) {
            Some(of) if of.len() == 1 => plain(&of[0]),
            _ => {
                let fields = fields.iter();
                Value::from_iter(fields.map(|(key, value)| (key.clone(), plain(value))))
            }
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

#[test]
fn capabilities_are_those_of_opa_without_what_is_refused() {
    let Some(opa) = fetch::opa() else { return };
    let text = std::fs::read_to_string(opa.join("capabilities/v1.22.4.json")).unwrap();
    let theirs: Value = serde_json::from_str(&text).unwrap();
    let ours = oz_rego::capabilities();
    let (ours, mut theirs) = (by_name(&ours), by_name(&theirs));
    for (name, builtin) in ours {
        let theirs = theirs.remove(name).map(plain);
        assert_eq!(Some(builtin.clone()), theirs, "{name}");
    }
    let refused = [
        "crypto.parse_private_keys",
        "crypto.x509.",
        "graphql.",
        "http.send",
        "internal.template_string",
        "internal.test_case",
        "io.jwt.",
        "net.lookup_ip_addr",
        "opa.runtime",
        "rand.intn",
        "uuid.rfc4122",
    ];
    theirs.retain(|name, _| !refused.iter().any(|refused| name.starts_with(refused)));
    assert!(theirs.is_empty(), "{:?}", theirs.keys());
}
