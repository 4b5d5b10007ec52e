//! Tests of validation and its messages. This module contains the helpers that the tests of all kinds share.

mod access_pod;
mod metadata;
mod request;
mod template;

use oz_api::{ExecAccessRequest, ExecAccessTemplate, PodAccessTemplate};
use serde_json::{Value, json};

use super::Violation;

/// Returns an object of the kind of `base`, with the change merged into it as a JSON Merge Patch does.
fn object<T: serde::de::DeserializeOwned>(mut base: Value, change: Value) -> T {
    fn merge(base: &mut Value, change: Value) {
        match (base, change) {
            (Value::Object(base), Value::Object(change)) => {
                for (key, value) in change {
                    if value.is_null() {
                        base.remove(&key);
                    } else {
                        merge(base.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (base, change) => *base = change,
        }
    }
    merge(&mut base, change);
    serde_json::from_value(base).unwrap()
}

fn exec_template(change: Value) -> ExecAccessTemplate {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessTemplate",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    });
    object(base, json!({ "spec": change }))
}

fn pod_template(change: Value) -> PodAccessTemplate {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "PodAccessTemplate",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    });
    object(base, json!({ "spec": change }))
}

fn exec_request(change: Value) -> ExecAccessRequest {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessRequest",
        "metadata": { "name": "alice-1", "namespace": "shop" },
        "spec": { "templateName": "web" },
    });
    object(base, change)
}

/// Returns the violations as lines.
fn lines<T>(result: Result<T, Vec<Violation>>) -> Vec<String> {
    texts(&result.err().unwrap_or_default())
}

fn texts(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(Violation::to_string).collect()
}
