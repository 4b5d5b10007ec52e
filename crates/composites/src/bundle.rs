//! The policy of a namespace: the modules in its ConfigMaps.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::ConfigMap;
use oz_api::encode::hex;
use sha2::{Digest, Sha256};

/// The suffix of the key of a module.
pub const MODULE: &str = ".rego";
/// The suffix of the key of a test module, which does not belong to the policy.
pub const TESTS: &str = "_test.rego";

/// Returns the modules of a bundle, each with its name, CONFIGMAP/KEY, and its text.
#[must_use]
pub fn modules<M: Borrow<ConfigMap>>(maps: impl IntoIterator<Item = M>) -> Vec<(String, String)> {
    let mut modules = Vec::new();
    for map in maps {
        modules.extend(read_modules(map.borrow(), false));
    }
    modules.sort();
    modules
}

/// Returns the modules of one ConfigMap, with its tests if `with_tests` is true.
#[must_use]
pub fn read_modules(map: &ConfigMap, with_tests: bool) -> Vec<(String, String)> {
    let Some(name) = &map.metadata.name else {
        return Vec::new();
    };
    let keys = map.data.iter().flatten();
    let keys = keys.filter(|(key, _)| key.ends_with(MODULE));
    let keys = keys.filter(|(key, _)| with_tests || !key.ends_with(TESTS));
    keys.map(|(key, text)| (format!("{name}/{key}"), text.clone()))
        .collect()
}

/// Returns the digest of the policies in one ConfigMap: of all its keys except those of tests, since a RegoController
/// may name any of them. It equals the digest of a bundle if the ConfigMap is the only one of the bundle and contains
/// modules only. Returns `None` if there are no such keys.
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
