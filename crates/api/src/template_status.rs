//! `status` of both kinds of template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known about a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// What was checked and what came of it, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Whether the template can be used: every condition is True.
    #[serde(default)]
    pub ready: bool,

    /// Not used on templates; here because the original's schema has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_message: Option<String>,

    /// What containers of the workload were found able to, by image: whether a session in them can
    /// be made to end by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub session_probes: Vec<SessionProbe>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What a container was found able to, by running a short script in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionProbe {
    /// Name of the container.
    #[serde(default)]
    pub container: String,

    /// The image that it ran, by its digest where the runtime says one.
    #[serde(default, rename = "imageID")]
    pub image_id: String,

    /// Whether it has a shell: without one, nothing can be ended in it.
    #[serde(default)]
    pub shell: bool,

    /// How it can end a command after a while; absent if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
}

/// What the `timeout` of a container is able to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// It can leave a command its terminal only when told to (GNU).
    #[serde(default)]
    pub foreground: bool,

    /// It can send one signal first and another later.
    #[serde(default)]
    pub kill_after: bool,

    /// It understands fractions of a second.
    #[serde(default)]
    pub fractions: bool,
}
