//! The objects in the scripts: the box `a` and its children, their paths, and their form in the API
//! server.

use serde_json::{Value, json};

pub(crate) const BOXES: &str = "/apis/test.wizardofoz.co/v1/timeboxes";
pub(crate) const BOX: &str = "/apis/test.wizardofoz.co/v1/namespaces/dev/timeboxes/a";
pub(crate) const BOX_STATUS: &str = "/apis/test.wizardofoz.co/v1/namespaces/dev/timeboxes/a/status";
pub(crate) const MAPS: &str = "/api/v1/namespaces/dev/configmaps";
pub(crate) const OUTER: &str = "/api/v1/namespaces/dev/configmaps/a-outer";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/dev/secrets";
pub(crate) const INNER: &str = "/api/v1/namespaces/dev/secrets/a-inner";

/// Returns the stored form of an object that is sent to the API server.
pub(crate) fn stored(sent: &Value, uid: &str, version: u64) -> Value {
    let mut object = sent.clone();
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["metadata"]["creationTimestamp"] = json!("2026-11-21T10:00:00Z");
    object
}

/// Returns the box `a`, which never ends.
pub(crate) fn timebox(version: u64) -> Value {
    json!({
        "apiVersion": "test.wizardofoz.co/v1",
        "kind": "Timebox",
        "metadata": {
            "name": "a", "namespace": "dev", "uid": "box-uid",
            "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-11-21T10:00:00Z",
        },
        "spec": {"content": "gold"},
    })
}

fn child(kind: &str, name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "dev", "uid": uid,
            "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {
                "app.kubernetes.io/managed-by": "oz",
                "oz.wizardofoz.co/owner-kind": "Timebox",
                "oz.wizardofoz.co/owner-uid": "box-uid",
            },
            "annotations": {"oz.wizardofoz.co/owner-name": "a"},
        },
    })
}

/// Returns the first child of the box in its desired state.
pub(crate) fn outer(version: u64) -> Value {
    let mut outer = child("ConfigMap", "a-outer", "outer-uid", version);
    outer["data"] = json!({"content": "gold"});
    outer
}

/// Returns the second child of the box in its desired state.
pub(crate) fn inner(version: u64) -> Value {
    let mut inner = child("Secret", "a-inner", "inner-uid", version);
    inner["type"] = json!("Opaque");
    inner
}

/// Returns the status of a box with both children.
pub(crate) fn open() -> Value {
    json!({"phase": "Open", "reason": null, "children": 2})
}
