//! The claim of a workspace.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use oz_api::harness::Workspace;
use serde_json::{Value, json};

use crate::child::object;
use crate::pod::claim_name;
use crate::seed::metadata;
use crate::stored::StoredObject;

/// The claim of a workspace, which owns it. A copy has its content by the storage class.
#[must_use]
pub fn claim(workspace: &StoredObject<'_, Workspace>) -> Value {
    let name = workspace.name();
    let storage = &workspace.spec.storage;
    let mut spec = json!({
        "accessModes": [storage.access_mode.to_string()],
        "resources": {"requests": {"storage": storage.size}},
    });
    if let Some(class) = &storage.storage_class {
        spec["storageClassName"] = json!(class);
    }
    if let Some(source) = &workspace.spec.source {
        if let Some(other) = &source.workspace_ref {
            spec["dataSource"] =
                json!({"kind": "PersistentVolumeClaim", "name": claim_name(other)});
        } else if let Some(snapshot) = &source.volume_snapshot_name {
            spec["dataSource"] = json!({
                "apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot",
                "name": snapshot,
            });
        }
    }
    object::<PersistentVolumeClaim>(&metadata(workspace, claim_name(name)), spec)
}
