//! The status of a run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::timestamp;

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarnessRunStatus {
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How far it came: Pending, Running, then Succeeded, Failed or Cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,

    /// What was checked and what came of it, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Name of its Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,

    /// Image of oz's own container in its pod, by which its transcript is read when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oz_image: Option<String>,

    /// Name of the workspace that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_ref: Option<String>,

    /// When its pod started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub start_time: Option<Timestamp>,

    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub completion_time: Option<Timestamp>,

    /// What happened last, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 500))]
    pub recent_events: Vec<RunEvent>,

    /// What it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<RunOutputs>,

    /// The credentials that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub credentials: Vec<RunCredential>,

    /// Whether its NetworkPolicy is part of what confines it. Never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy_enforced: Option<bool>,

    /// What brokers issued to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["leaseID".into()]))]
    pub issued_leases: Vec<IssuedLease>,

    /// Where an interactive run stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<InteractiveStatus>,
}

/// How far a run came.
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
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum RunPhase {
    /// It waits, for its workspace or its pod.
    #[default]
    Pending,
    /// Its agent runs.
    Running,
    /// Its agent waits for a prompt.
    Idle,
    /// Its agent ended with exit code 0.
    Succeeded,
    /// It could not be run, or its agent ended otherwise.
    Failed,
    /// It was ended before its agent was done.
    Cancelled,
}

impl RunPhase {
    /// Checks whether the phase is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Something that happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Version of this form: 1.
    #[serde(default)]
    pub schema_version: String,

    /// When.
    #[schemars(schema_with = "timestamp")]
    pub ts: Timestamp,

    /// What: ToolUse, Message, FileEdit, Commit, Elicitation, Error, Result, PromptSubmitted, or another.
    #[serde(rename = "type")]
    pub type_: String,

    /// In a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,

    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// What a run made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunOutputs {
    /// Pull requests, as URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_requests: Vec<String>,

    /// How many files were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<i32>,

    /// In a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// Files, as paths in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

/// A credential that a run has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCredential {
    /// Its name.
    pub name: String,

    /// Who issues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,

    /// Where its value is: with the proxy, or with the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mode: Option<DeliveryName>,

    /// The hosts that it is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,

    /// Why the agent has its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_container_reason: Option<String>,
}

/// Where the value of a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryName {
    /// With the proxy, which puts it into requests.
    ProxyInjected,
    /// With the agent.
    InContainer,
}

/// Something that brokers issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedLease {
    /// Who issues it.
    pub provider: String,

    /// Its id.
    #[serde(rename = "leaseID")]
    pub lease_id: String,

    /// Which credential it is for.
    pub credential_name: String,

    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// The slot of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
}

/// A slot of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// The Secret with the pool.
    pub secret_ref: SlotSecret,

    /// Which one, from 0.
    pub slot_index: i32,
}

/// The Secret with a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlotSecret {
    /// Its name.
    pub name: String,

    /// Key in it.
    pub key: String,
}

/// Where an interactive run stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveStatus {
    /// How many prompts it had.
    #[serde(default)]
    pub prompt_count: i32,

    /// When it had the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_prompt_at: Option<Timestamp>,

    /// How many clients are attached.
    #[serde(default)]
    pub attached_sessions: i32,

    /// When one was attached last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_attached_at: Option<Timestamp>,

    /// Since when nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub idle_since: Option<Timestamp>,

    /// The prompt that is being worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_turn_seq: Option<i32>,

    /// How often credentials were renewed.
    #[serde(default)]
    pub renewal_count: i32,

    /// When they were renewed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_renewal_at: Option<Timestamp>,
}
