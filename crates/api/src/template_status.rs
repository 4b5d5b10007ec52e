//! `status` of both kinds of template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// Conditions of the template, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// True if the template can be used: every condition is True.
    #[serde(default)]
    pub ready: bool,

    /// Unused for templates; present because the original schema has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_message: Option<String>,

    /// Results of the probes of the workload's containers, by image, at most 64: they determine whether oz
    /// can terminate sessions in the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub session_probes: Vec<SessionProbe>,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Result of a short script that oz ran in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionProbe {
    /// Name of the container.
    #[serde(default)]
    pub container: String,

    /// Image of the container, by digest if the container runtime reports one.
    #[serde(default, rename = "imageID")]
    pub image_id: String,

    /// True if the container has a shell. oz cannot terminate processes in a container without one.
    #[serde(default)]
    pub shell: bool,

    /// Features of the command timeout in the container. Unset if it cannot end a command after a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
}

/// Features of the command timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// True if it has the option --foreground (GNU).
    #[serde(default)]
    pub foreground: bool,

    /// True if it can send a second signal after a further time.
    #[serde(default)]
    pub kill_after: bool,

    /// True if it accepts fractions of a second.
    #[serde(default)]
    pub fractions: bool,
}
