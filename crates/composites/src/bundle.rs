//! The policy of a namespace: the modules that its ConfigMaps hold.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::ConfigMap;
use oz_api::encode::hex;
use sha2::{Digest, Sha256};

/// What the key of a module ends in.
pub const MODULE: &str = ".rego";
/// What the key of a module of tests ends in, which is no part of the policy.
pub const TESTS: &str = "_test.rego";

/// The modules of a bundle, each with its name, CONFIGMAP/KEY, and its text.
#[must_use]
pub fn modules<M: Borrow<ConfigMap>>(maps: impl IntoIterator<Item = M>) -> Vec<(String, String)> {
    let mut modules = Vec::new();
    for map in maps {
        modules.extend(of(map.borrow(), false));
    }
    modules.sort();
    modules
}

/// Those of one ConfigMap, and its tests if they are wanted.
#[must_use]
pub fn of(map: &ConfigMap, with_tests: bool) -> Vec<(String, String)> {
    let name = map.metadata.name.as_deref().unwrap_or_default();
    let keys = map.data.iter().flatten();
    let keys = keys.filter(|(key, _)| key.ends_with(MODULE));
    let keys = keys.filter(|(key, _)| with_tests || !key.ends_with(TESTS));
    keys.map(|(key, text)| (format!("{name}/{key}"), text.clone()))
        .collect()
}

/// Digest of what one ConfigMap holds of policies: all its keys but those of tests, since a RegoController may name
/// any of them. That of a bundle, if it is its only ConfigMap and has modules alone. `None` if there is nothing.
#[must_use]
pub fn digest_of(map: &ConfigMap) -> Option<String> {
    let name = map.metadata.name.as_deref().unwrap_or_default();
    let keys = map.data.iter().flatten();
    let keys = keys.filter(|(key, _)| !key.ends_with(TESTS));
    let mut parts: Vec<(String, &String)> = keys
        .map(|(key, text)| (format!("{name}/{key}"), text))
        .collect();
    parts.sort();
    let mut digest = Sha256::new();
    for (name, text) in &parts {
        // As `oz_rego::digest` does.
        for part in [name, *text] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    (!parts.is_empty()).then(|| format!("sha256:{}", hex(&digest.finalize())))
}

/// What is said of a namespace without a policy.
#[must_use]
pub fn missing(namespace: &str) -> String {
    format!("no ConfigMap in {namespace} has a key that ends in {MODULE}")
}

/// What is said of a policy that does not compile.
#[must_use]
pub fn broken(namespace: &str, errors: &dyn std::fmt::Display) -> String {
    format!("the policy in {namespace} does not compile: {errors}")
}
