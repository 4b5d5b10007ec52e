//! The policy of a namespace: the modules in its ConfigMaps, and the documents below `data`.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::ConfigMap;
use oz_api::encode::hex;
use sha2::{Digest, Sha256};

/// The suffix of the key of a module.
pub const MODULE: &str = ".rego";
/// The suffix of the key of a test module, which does not belong to the policy.
pub const TESTS: &str = "_test.rego";

/// The suffixes of the keys of documents below `data`.
const DOCUMENTS: [&str; 2] = [".json", ".yaml"];
/// The label of a ConfigMap with documents and without a module, and its value: that of OPA's `kube-mgmt`.
/// See <https://github.com/open-policy-agent/kube-mgmt#loading-policies-and-json-into-opa>.
const DATA: (&str, &str) = ("openpolicyagent.org/data", "opa");

/// Returns the modules and documents of a bundle, each with its name, CONFIGMAP/KEY, and its text. There are none
/// without a module.
#[must_use]
pub fn texts<M: Borrow<ConfigMap>>(maps: impl IntoIterator<Item = M>) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for map in maps {
        let map = map.borrow();
        texts.extend(named(map, is_module));
        texts.extend(documents(map));
    }
    if !texts.iter().any(|(name, _)| is_module(name)) {
        texts.clear();
    }
    texts.sort();
    texts
}

/// Returns the documents of a ConfigMap that belong to a bundle: of one that has a module, or the label for data.
fn documents(map: &ConfigMap) -> Vec<(String, String)> {
    let has_module = map.data.iter().flatten().any(|(key, _)| is_module(key));
    let label = map.metadata.labels.iter().flatten();
    let mut label = label.filter(|(key, value)| (key.as_str(), value.as_str()) == DATA);
    match has_module || label.next().is_some() {
        true => named(map, is_document),
        false => Vec::new(),
    }
}

fn is_document(key: &str) -> bool {
    DOCUMENTS.iter().any(|suffix| key.ends_with(suffix))
}

/// Returns the text of a key, named `place`, with the documents below `data` of its ConfigMap; `None` if there is no
/// such key.
#[must_use]
pub fn with_documents(map: &ConfigMap, key: &str, place: &str) -> Option<Vec<(String, String)>> {
    let text = map.data.as_ref()?.get(key)?.clone();
    let mut texts = named(map, is_document);
    texts.insert(0, (place.to_owned(), text));
    Some(texts)
}

/// Checks whether a key is that of a module that belongs to the policy.
fn is_module(key: &str) -> bool {
    key.ends_with(MODULE) && !key.ends_with(TESTS)
}

/// Returns the texts of some keys, each with its name.
fn named(map: &ConfigMap, is_one: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let Some(name) = &map.metadata.name else {
        return Vec::new();
    };
    let keys = map.data.iter().flatten();
    let keys = keys.filter(|(key, _)| is_one(key));
    keys.map(|(key, text)| (format!("{name}/{key}"), text.clone()))
        .collect()
}

/// Returns the digest of the policies in one ConfigMap: of all its keys except those of tests, since a RegoController
/// may name any of them. It equals the digest of a bundle if the ConfigMap is the only one of the bundle and contains
/// modules and documents only. Returns `None` if there are no such keys.
#[must_use]
pub fn digest_of(map: &ConfigMap) -> Option<String> {
    let name = map.metadata.name.as_ref()?;
    let keys = map.data.iter().flatten();
    let keys = keys.filter(|(key, _)| !key.ends_with(TESTS));
    let mut parts: Vec<(String, &String)> = keys
        .map(|(key, text)| (format!("{name}/{key}"), text))
        .collect();
    parts.sort();
    let mut digest = Sha256::new();
    for (name, text) in &parts {
        // The same form as in `oz_rego::digest`.
        for part in [name, *text] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    (!parts.is_empty()).then(|| format!("sha256:{}", hex(&digest.finalize())))
}

/// Returns the message for a namespace without a policy.
#[must_use]
pub fn missing(namespace: &str) -> String {
    format!("no ConfigMap in {namespace} has a key that ends in {MODULE}")
}

/// Returns the message for a policy that does not compile.
#[must_use]
pub fn broken(namespace: &str, errors: &dyn std::fmt::Display) -> String {
    format!("the policy in {namespace} does not compile: {errors}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(name: &str, labels: Value, data: Value) -> ConfigMap {
        let metadata = json!({"name": name, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
    }

    #[test]
    fn documents_belong_to_policies_beside_modules_or_by_label() {
        let texts = json!({"a.json": "{}", "b.yaml": "{}", "c.yml": "", "README.md": ""});
        let mut with_module = texts.clone();
        with_module["p.rego"] = json!("package p");
        with_module["p_test.rego"] = json!("package p_test");
        let policy = map("policy", json!({}), with_module);
        let labelled = map(
            "data",
            json!({"openpolicyagent.org/data": "opa"}),
            texts.clone(),
        );
        let other = map(
            "other",
            json!({"openpolicyagent.org/data": "no"}),
            texts.clone(),
        );
        let tests_only = map(
            "tests",
            json!({}),
            json!({"p_test.rego": "", "a.json": "{}"}),
        );
        let found = |maps: &[&ConfigMap]| -> Vec<String> {
            let texts = super::texts(maps.iter().copied());
            texts.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(
            found(&[&other, &policy, &labelled, &tests_only]),
            [
                "data/a.json",
                "data/b.yaml",
                "policy/a.json",
                "policy/b.yaml",
                "policy/p.rego"
            ]
        );
        assert!(found(&[&labelled]).is_empty(), "no policy without a module");
        let one = with_documents(&policy, "p.rego", "ops/policy/p.rego").unwrap();
        let names: Vec<_> = one.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["ops/policy/p.rego", "policy/a.json", "policy/b.yaml"]
        );
        assert_eq!(with_documents(&policy, "q.rego", "q"), None);
    }
}
