//! The status of a run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApprovalStatus;
use crate::schema::timestamp;

/// Observed state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarnessRunStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Phase of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,

    /// Conditions of the run, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Approvals that the run waits for, or waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStatus>,

    /// Name of the Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,

    /// Image of oz's container in the pod, which also reads the transcript after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oz_image: Option<String>,

    /// Name of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_ref: Option<String>,

    /// Time at which the pod started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub start_time: Option<Timestamp>,

    /// Time at which the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub completion_time: Option<Timestamp>,

    /// Last events of the run, the oldest first, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 500))]
    pub recent_events: Vec<RunEvent>,

    /// Results of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<RunOutputs>,

    /// Credentials of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub credentials: Vec<RunCredential>,

    /// True if the NetworkPolicy of the run is effective; false if other NetworkPolicies permit more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy_enforced: Option<bool>,

    /// Credentials that brokers issued to the run. Values that the proxy injects are lent for minutes and
    /// not listed here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["leaseID".into()]))]
    pub issued_leases: Vec<IssuedLease>,

    /// Destinations of the agent, as the broker counts them, the most recent first, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 20))]
    pub egress: Vec<RunEgress>,

    /// State of an interactive run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<InteractiveStatus>,
}

/// The maximum number of destinations in the status of a run.
pub const MAX_EGRESS: usize = 20;

/// Phase of the run. Pending: the run waits for its workspace or pod. Running: the agent runs. Idle: the
/// agent waits for a prompt. Final phases: Succeeded, Failed and Cancelled.
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
    /// The run waits for its workspace or pod.
    #[default]
    Pending,
    /// The agent runs.
    Running,
    /// The agent waits for a prompt.
    Idle,
    /// The agent exited with code 0.
    Succeeded,
    /// The run could not start, or the agent exited with another code.
    Failed,
    /// The run ended before the agent exited.
    Cancelled,
}

impl RunPhase {
    /// Checks whether the phase is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// An event of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Version of the format of the event: 1.
    #[serde(default)]
    pub schema_version: String,

    /// Time of the event.
    #[schemars(schema_with = "timestamp")]
    pub ts: Timestamp,

    /// Type of the event: ToolUse, Message, FileEdit, Commit, Elicitation, Error, Result, PromptSubmitted,
    /// or another.
    #[serde(rename = "type")]
    pub type_: String,

    /// Short description of the event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,

    /// Additional values of the event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunOutputs {
    /// URLs of pull requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_requests: Vec<String>,

    /// Number of changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<i32>,

    /// Short description of the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// Paths of created files in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

/// A credential of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCredential {
    /// Name of the credential.
    pub name: String,

    /// Kind of its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,

    /// Delivery of the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mode: Option<DeliveryName>,

    /// Hosts that get the credential.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,

    /// Reason why the agent has the value, from the broker policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_container_reason: Option<String>,
}

/// Delivery of the credential. ProxyInjected: the proxy adds it to requests. InContainer: the agent has the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryName {
    /// The proxy adds the credential to requests.
    ProxyInjected,
    /// The agent has the value of the credential.
    InContainer,
}

/// A credential that a broker issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedLease {
    /// Kind of the provider.
    pub provider: String,

    /// ID of the lease.
    #[serde(rename = "leaseID")]
    pub lease_id: String,

    /// Name of the credential.
    pub credential_name: String,

    /// Expiry of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// Slot of the pool, for PATPool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
}

/// A slot of a pool of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Key of the Secret with the pool.
    pub secret_ref: SlotSecret,

    /// Index of the slot, from 0.
    pub slot_index: i32,
}

/// Reference to the key of a Secret with a pool of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlotSecret {
    /// Name of the Secret.
    pub name: String,

    /// Key of the pool.
    pub key: String,
}

/// A destination of a run, with the connections that its proxy opened and denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEgress {
    /// Host that the agent requested; empty for a connection without a name.
    #[serde(default)]
    pub host: String,

    /// Port; 0 for the resolution of a name.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0, max = 65535))]
    pub port: u16,

    /// Number of connections that the proxy opened.
    #[serde(default)]
    pub granted: i64,

    /// Number of connections, requests and names that the proxy denied.
    #[serde(default)]
    pub refused: i64,

    /// Reason of the last denial, such as HostNotGranted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Name of the credential of the last denial, or of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,

    /// Time of the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub first: Option<Timestamp>,

    /// Time of the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last: Option<Timestamp>,
}

/// State of an interactive run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveStatus {
    /// Number of prompts.
    #[serde(default)]
    pub prompt_count: i32,

    /// Time of the last prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_prompt_at: Option<Timestamp>,

    /// Number of attached clients.
    #[serde(default)]
    pub attached_sessions: i32,

    /// Time at which a client attached last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_attached_at: Option<Timestamp>,

    /// Time since which the run has no activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub idle_since: Option<Timestamp>,

    /// Sequence number of the current prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_turn_seq: Option<i32>,

    /// Number of renewals of credentials.
    #[serde(default)]
    pub renewal_count: i32,

    /// Time of the last renewal of credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_renewal_at: Option<Timestamp>,
}
