//! Harness runs at admission: all violations are reported at once, and actions and reads through oz
//! are denied to users without the rights for them.

mod policy;
mod run;
mod template;
mod terms;
mod workspace;

use serde_json::{Value, json};

use super::Attempt;

/// Returns an object of a kind of paddock.dev in namespace `shop`.
pub(super) fn object(kind: &str, name: &str, spec: Value) -> Value {
    let namespace = (kind != "ClusterHarnessTemplate").then_some("shop");
    json!({
        "apiVersion": "paddock.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

pub(super) fn echo(kind: &str) -> Value {
    let spec = json!({"harness": "echo", "image": "registry.test/echo:1", "command": ["/echo"]});
    object(kind, "echo", spec)
}

/// Returns the creation of an object by bob.
fn bob(object: Value) -> Attempt {
    Attempt::create("bob", &["devs"], object)
}

/// Returns the object as it is during its deletion.
fn going(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
    object
}
