//! The policy of a namespace: the modules that its ConfigMaps hold.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::ConfigMap;

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
