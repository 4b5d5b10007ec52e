//! `controllerTargetMutationConfig`: the differences of an access pod from the pods of its workload. The fields apply
//! in the order of the original, which is the order here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::optional::not_empty;
use super::schema::{any_value, env, resources};

/// How an access pod differs from the pods of its workload. Its labels are always dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateSpecMutationConfig {
    /// The container that the other fields are about and that people enter. Absent means the one
    /// of the annotation kubectl.kubernetes.io/default-container, or else the first.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub default_container_name: Option<String>,

    /// Keeps the workload's terminationGracePeriodSeconds. By default the pod ends at once.
    #[serde(default)]
    pub keep_termination_grace_period: bool,

    /// Keeps the livenessProbe of every container.
    #[serde(default)]
    pub keep_liveness_probe: bool,

    /// Keeps the readinessProbe of every container.
    #[serde(default)]
    pub keep_readiness_probe: bool,

    /// Keeps the startupProbe of every container.
    #[serde(default)]
    pub keep_startup_probe: bool,

    /// Keeps the topologySpreadConstraints, and the required anti-affinity to the workload's own pods.
    #[serde(default)]
    pub keep_topology_spread_constraints: bool,

    /// Drops the workload's annotations.
    #[serde(default)]
    pub purge_annotations: bool,

    /// Annotations to add, or to set to another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,

    /// Entries of the nodeSelector to add, or to set to another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// The pod's labels. Those of the workload are never kept, so that no Service and no workload
    /// takes the pod for one of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,

    /// Replaces the container's command, and clears its args. An empty list counts as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub command: Option<Vec<String>>,

    /// Replaces the container's args.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub args: Option<Vec<String>>,

    /// Replaces the container's resources as a whole: a limit that is not named here is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables to append to the container's own. Of two with one name the last wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "env")]
    pub env: Vec<EnvVar>,

    /// A JSON Patch (RFC 6902) on the pod template as the fields above leave it. Paths begin with
    /// /metadata or /spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub patch_spec_operations: Vec<PatchSpecOperation>,
}

/// One operation of a JSON Patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchSpecOperation {
    /// What to do: add, remove, replace, move, copy or test.
    pub op: PatchOp,

    /// Where, as a JSON Pointer: /spec/containers/0/name.
    #[schemars(length(max = 1024))]
    pub path: String,

    /// Where to move or copy from, as a JSON Pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub from: Option<String>,

    /// The value to add, to replace with or to test for: any JSON.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "any_value")]
    pub value: Option<Value>,
}

/// Reads a field so that an explicit `null` is a value; only a missing field is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What an operation of a JSON Patch does.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PatchOp {
    /// Adds `value` at `path`.
    Add,
    /// Removes what is at `path`.
    Remove,
    /// Replaces what is at `path` by `value`.
    Replace,
    /// Moves what is at `from` to `path`.
    Move,
    /// Copies what is at `from` to `path`.
    Copy,
    /// Fails unless `value` is at `path`.
    Test,
}
