//! Harness runs at admission: everything that is wrong at once, and nobody gets through oz what they could not do or
//! read themselves.

mod policy;
mod run;
mod template;
mod workspace;

use serde_json::{Value, json};

use super::Attempt;

/// An object of a kind of paddock.dev in namespace `shop`.
fn object(kind: &str, name: &str, spec: Value) -> Value {
    let namespace = (kind != "ClusterHarnessTemplate").then_some("shop");
    json!({
        "apiVersion": "paddock.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

fn echo(kind: &str) -> Value {
    let spec = json!({"harness": "echo", "image": "registry.test/echo:1", "command": ["/echo"]});
    object(kind, "echo", spec)
}

/// What bob does.
fn bob(object: Value) -> Attempt {
    Attempt::create("bob", &["devs"], object)
}

/// The object as it looks while it is being deleted.
fn going(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
    object
}
