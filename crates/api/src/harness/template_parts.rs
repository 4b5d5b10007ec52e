//! The parts of a template.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{DURATION, DURATION_MESSAGE, resources};

/// The mount path of the workspace if a template sets none.
pub const DEFAULT_MOUNT_PATH: &str = "/workspace";

/// The cluster template that a template inherits from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseTemplateRef {
    /// Name of a ClusterHarnessTemplate.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What a run gets unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDefaults {
    /// The model, for the harness to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub model: Option<String>,

    /// How long a batch run may last, such as 45s or 1h30m. 30m if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// Resources of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// How long the agent has to end by itself, in seconds, 60 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300))]
    pub termination_grace_period_seconds: Option<i64>,
}

/// The container beside the agent that reads its output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeImage {
    /// Its image. Absent means oz's own, which reads the formats that it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// Always, Never or IfNotPresent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(Always|Never|IfNotPresent)?$"))]
    pub image_pull_policy: Option<String>,
}

/// What a template needs that only a BrokerPolicy can grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requires {
    /// Credentials, each under its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub credentials: Vec<CredentialNeed>,

    /// Hosts that the agent connects to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub egress: Vec<EgressNeed>,
}

/// A credential that a template needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialNeed {
    /// Its name, which is that of the agent's environment variable as well.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A host that a template needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressNeed {
    /// The host, or `*.` and a domain for all hosts below it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,

    /// Ports; none, or 0 among them, for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 0, max = 65535)))]
    pub ports: Vec<i32>,
}

/// How runs of a template use a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateWorkspace {
    /// Whether a run without a workspace gets one that ends with it.
    #[serde(default = "required")]
    pub required: bool,

    /// Where it is mounted.
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

/// Whether and how runs of a template take more than one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveTerms {
    /// How the harness takes prompts; empty: one only.
    #[serde(default, skip_serializing_if = "InteractiveMode::is_batch")]
    pub mode: InteractiveMode,

    /// How long nothing may happen while somebody is attached. 30m if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// How long nothing may happen while nobody is attached. 15m if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_idle_timeout: Option<String>,

    /// How long nobody may be attached. 5m if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_timeout: Option<String>,

    /// How long a run may last. 24h if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_lifetime: Option<String>,

    /// How many of its last events the status of a run keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 500))]
    pub max_recent_events: Option<i32>,
}

/// How a harness takes prompts.
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
    /// One only.
    #[default]
    #[serde(rename = "")]
    #[strum(serialize = "")]
    Batch,
    /// A process for each.
    #[serde(rename = "per-prompt-process")]
    #[strum(serialize = "per-prompt-process")]
    PerPromptProcess,
    /// One process for all.
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
