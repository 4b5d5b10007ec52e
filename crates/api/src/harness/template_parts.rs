//! The parts of a template.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{DURATION, DURATION_MESSAGE, resources};

/// The mount path of the workspace if a template sets none.
pub const DEFAULT_MOUNT_PATH: &str = "/workspace";

/// Reference to the cluster template from which a template inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseTemplateRef {
    /// Name of a ClusterHarnessTemplate.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Values for runs that do not set them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDefaults {
    /// Model, for the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub model: Option<String>,

    /// Maximum duration of a batch run from the start of its Job, such as 45s or 1h30m. 30m if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// Resources of the agent's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// Time in seconds from the request for termination until the agent is killed, from 0 to 300. 60 if
    /// unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300))]
    pub termination_grace_period_seconds: Option<i64>,
}

/// The container that converts the agent's output into events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeImage {
    /// Image of the container. If unset, oz's own image, which supports the known formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// Pull policy of the image: Always, Never or IfNotPresent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(Always|Never|IfNotPresent)?$"))]
    pub image_pull_policy: Option<String>,
}

/// Credentials and hosts that a template requires and that broker policies must grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requires {
    /// Required credentials, at most 64, each with a unique name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub credentials: Vec<CredentialNeed>,

    /// Hosts to which the agent connects, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub egress: Vec<EgressNeed>,
}

/// A credential that a template requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialNeed {
    /// Name of the credential, and of the agent's environment variable.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A host that a template requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressNeed {
    /// Host name, or `*.` and a domain for all hosts below it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,

    /// Ports, at most 64. Any port if empty or if 0 is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 0, max = 65535)))]
    pub ports: Vec<i32>,
}

/// Use of a workspace by the runs of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateWorkspace {
    /// Gives a run without workspaceRef a workspace that is deleted with the run.
    #[serde(default = "required")]
    pub required: bool,

    /// Mount path of the workspace in the agent's container.
    #[serde(default = "mount_path")]
    #[schemars(length(min = 1, max = 1024))]
    pub mount_path: String,
}

impl Default for TemplateWorkspace {
    fn default() -> Self {
        Self {
            required: required(),
            mount_path: mount_path(),
        }
    }
}

fn required() -> bool {
    true
}

fn mount_path() -> String {
    DEFAULT_MOUNT_PATH.to_owned()
}

/// Interactive runs of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveTerms {
    /// Processing of prompts. per-prompt-process: one process for each prompt. persistent-process: one
    /// process for all prompts. Empty: one prompt for each run.
    #[serde(default, skip_serializing_if = "InteractiveMode::is_batch")]
    pub mode: InteractiveMode,

    /// Time without activity while a client is attached, after which the run ends. Must not exceed
    /// maxLifetime. 30m if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// Time without activity while no client is attached, after which the run ends. Must not exceed
    /// idleTimeout. 15m if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_idle_timeout: Option<String>,

    /// Time without an attached client, after which the run ends. Must not exceed maxLifetime. 5m if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_timeout: Option<String>,

    /// Maximum duration of a run. 24h if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_lifetime: Option<String>,

    /// Maximum number of events in status.recentEvents of a run, from 10 to 500. 50 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 500))]
    pub max_recent_events: Option<i32>,
}

/// The processing of prompts by a harness.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
)]
pub enum InteractiveMode {
    /// One prompt for each run.
    #[default]
    #[serde(rename = "")]
    #[strum(serialize = "")]
    Batch,
    /// One process for each prompt.
    #[serde(rename = "per-prompt-process")]
    #[strum(serialize = "per-prompt-process")]
    PerPromptProcess,
    /// One process for all prompts.
    #[serde(rename = "persistent-process")]
    #[strum(serialize = "persistent-process")]
    PersistentProcess,
}

impl InteractiveMode {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_batch(&self) -> bool {
        *self == Self::Batch
    }
}
