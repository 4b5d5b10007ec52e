//! `controllerTargetMutationConfig`: the differences of an access pod from the pods of its workload. The fields apply
//! in the order of the original, which is the order here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::optional::not_empty;
use super::schema::{any_value, env, resources};

/// Differences of a dedicated pod from the pods of its workload. The labels of the workload are always dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateSpecMutationConfig {
    /// Name of the container that users access and to which the other fields apply. If unset, the container
    /// that the annotation kubectl.kubernetes.io/default-container names, or the first.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub default_container_name: Option<String>,

    /// Keeps terminationGracePeriodSeconds of the workload. By default it is one second.
    #[serde(default)]
    pub keep_termination_grace_period: bool,

    /// Keeps the livenessProbe of every container. By default it is dropped.
    #[serde(default)]
    pub keep_liveness_probe: bool,

    /// Keeps the readinessProbe of every container. By default it is dropped.
    #[serde(default)]
    pub keep_readiness_probe: bool,

    /// Keeps the startupProbe of every container. By default it is dropped.
    #[serde(default)]
    pub keep_startup_probe: bool,

    /// Keeps topologySpreadConstraints, and the required anti-affinity to the pods of the workload. By
    /// default both are dropped.
    #[serde(default)]
    pub keep_topology_spread_constraints: bool,

    /// Drops the annotations of the workload. By default they are kept.
    #[serde(default)]
    pub purge_annotations: bool,

    /// Annotations to add or replace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,

    /// Entries of nodeSelector to add or replace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Labels of the pod. The labels of the workload are never kept, so that no Service or workload selects
    /// the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,

    /// Command of the container, at most 256 items. It replaces the command and removes args; an empty list
    /// also does. The command is kept if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub command: Option<Vec<String>>,

    /// Arguments of the container, at most 256 items. They replace args. args are kept if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub args: Option<Vec<String>>,

    /// Resources of the container. They replace the resources as a whole: limits and requests that are not
    /// listed here are removed. The resources are kept if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables to append to those of the container. Of two variables with the same name, the
    /// last applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "env")]
    pub env: Vec<EnvVar>,

    /// JSON Patch (RFC 6902) of the pod template after all other fields were applied, with at most 64
    /// operations. Paths begin with /metadata or /spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub patch_spec_operations: Vec<PatchSpecOperation>,
}

/// An operation of a JSON Patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchSpecOperation {
    /// Operation: add, remove, replace, move, copy or test.
    pub op: PatchOp,

    /// Target of the operation, as a JSON Pointer such as /spec/containers/0/name; at most 1024 characters.
    #[schemars(length(max = 1024))]
    pub path: String,

    /// Source of the operations move and copy, as a JSON Pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub from: Option<String>,

    /// Value of the operations add, replace and test: any JSON value.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "any_value")]
    pub value: Option<Value>,
}

/// Reads a field so that an explicit `null` is a value; only a missing field is `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An operation of a JSON Patch.
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
    /// Removes the value at `path`.
    Remove,
    /// Replaces the value at `path` with `value`.
    Replace,
    /// Moves the value at `from` to `path`.
    Move,
    /// Copies the value at `from` to `path`.
    Copy,
    /// Fails unless `value` is at `path`.
    Test,
}
