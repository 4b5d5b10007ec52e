//! `spec.accessConfig`, the same on both kinds of template: the users who may get access, the operations, the duration,
//! and the messages for users.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};
use super::{
    ApprovalConfig, DebugConfig, EmergencyConfig, ModerationConfig, RecordingConfig, TicketConfig,
};

/// The value of `defaultDuration` if a template names none.
pub const DEFAULT_DURATION: &str = "1h";
/// The value of `maxDuration` if a template names none.
pub const DEFAULT_MAX_DURATION: &str = "24h";
/// The value of `accessCommand` if a template names none.
pub const DEFAULT_ACCESS_COMMAND: &str =
    "kubectl exec -ti -n {{ .Metadata.Namespace }} {{ .Metadata.Name }} -- /bin/sh";

/// Users who may request access, permitted operations, duration and requirements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessConfig {
    /// Groups that may request access, at most 256. May be empty if allowedUsers is not.
    #[schemars(length(max = 256), inner(length(max = 512)))]
    pub allowed_groups: Vec<String>,

    /// Users who may request access in addition to the members of allowedGroups, by the user name of the
    /// API server; at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 512)))]
    pub allowed_users: Vec<String>,

    /// Permits service accounts to request access. They must also be among allowedGroups or allowedUsers.
    #[serde(default)]
    pub allow_service_accounts: bool,

    /// Duration of access for a request without one, in units from h to ns, such as 30m or 1h30m. Must not
    /// exceed maxDuration.
    #[serde(default = "default_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub default_duration: String,

    /// Maximum duration of access. A request for more is shortened to it.
    #[serde(default = "default_max_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: String,

    /// Message for the requester when the access is ready: a Go text/template over the pod's metadata, such
    /// as `kubectl exec -ti -n {{ .Metadata.Namespace }} {{ .Metadata.Name }} -- /bin/sh`.
    #[serde(default = "default_access_command")]
    #[schemars(length(max = 4096))]
    pub access_command: String,

    /// Subject of the grant. Requester: only the user who created the request. Groups: every group of
    /// allowedGroups, as in the original Oz, so that the request of one member grants access to all
    /// members.
    #[serde(default)]
    pub bind: Bind,

    /// Operations that a grant permits: Exec, Attach, PortForward, Log and Debug. Debug adds a container to
    /// the pod (kubectl debug), and requires sessions: Gate and the field debug.
    #[serde(default = "default_operations")]
    #[schemars(length(min = 1, max = 5), extend("x-kubernetes-list-type" = "set"))]
    pub operations: Vec<Operation>,

    /// Containers that users may access, at most 32. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub containers: Vec<String>,

    /// CEL expression over `argv`, `tty`, `stdin` and `container` that a command must satisfy. It applies
    /// in enforcing namespaces, where oz sees commands. If unset, all commands are permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub command_policy: Option<String>,

    /// Whether a session must be known to end with the grant. BestEffort: sessions that cannot be
    /// cut are let through, and the request says so in its condition SessionTermination. Required: they
    /// are refused. Gate: the requester gets to the pod through oz's gate alone, which closes every
    /// session at its end; the operator needs to know of a gate (gate.enabled).
    #[serde(default)]
    pub sessions: Sessions,

    /// Recording of sessions. Requires `sessions: Gate`, and recording storage in the configuration of the
    /// gate. Not recorded if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingConfig>,

    /// Moderators that a session requires. The session opens when enough moderators watch, is held while
    /// too few do, and is terminated after a minute without enough. Requires `sessions: Gate`. No
    /// moderators if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moderation: Option<ModerationConfig>,

    /// Containers that a user may add to the pod. Required with the operation Debug, and invalid without
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug: Option<DebugConfig>,

    /// Time without data in either direction after which the gate terminates a session, such as 10m; at
    /// least 10s. Requires sessions: Gate. If unset, only the expiry of the grant limits an idle session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// What happens when the pod of a grant is replaced. Revoke: the grant ends. Follow: it moves
    /// to another pod of the same workload.
    #[serde(default)]
    pub on_pod_replacement: OnPodReplacement,

    /// Effect of a change of this template on existing grants. Keep: they do not change. Revoke: they are
    /// revoked.
    #[serde(default)]
    pub on_template_change: OnTemplateChange,

    /// Records the arguments of commands. By default audit records contain only a digest of them, since
    /// arguments can contain secrets.
    #[serde(default)]
    pub record_arguments: bool,

    /// Requires a reason (spec.reason) from each request.
    #[serde(default)]
    pub require_reason: bool,

    /// Change ticket that a request must name (spec.ticket). Not required if unset. Emergencies never
    /// require one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<TicketConfig>,

    /// Approvals that a request requires before it is granted. None if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalConfig>,

    /// Users who get access without approvals if their request declares an emergency (spec.emergency), and
    /// users who review it afterwards. No emergencies if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<EmergencyConfig>,
}

impl Default for AccessConfig {
    /// Returns the `accessConfig` that the schema's defaults produce if no field is set.
    fn default() -> Self {
        Self {
            allowed_groups: Vec::new(),
            allowed_users: Vec::new(),
            allow_service_accounts: false,
            default_duration: default_duration(),
            max_duration: default_max_duration(),
            access_command: default_access_command(),
            bind: Bind::default(),
            operations: default_operations(),
            containers: Vec::new(),
            command_policy: None,
            sessions: Sessions::default(),
            recording: None,
            moderation: None,
            debug: None,
            idle_timeout: None,
            on_pod_replacement: OnPodReplacement::default(),
            on_template_change: OnTemplateChange::default(),
            record_arguments: false,
            require_reason: false,
            ticket: None,
            approval: None,
            emergency: None,
        }
    }
}

fn default_duration() -> String {
    DEFAULT_DURATION.to_owned()
}

fn default_max_duration() -> String {
    DEFAULT_MAX_DURATION.to_owned()
}

fn default_access_command() -> String {
    DEFAULT_ACCESS_COMMAND.to_owned()
}

fn default_operations() -> Vec<Operation> {
    vec![Operation::Exec]
}

/// The subject of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Bind {
    /// Only the user who created the request.
    #[default]
    Requester,
    /// Every group of `allowedGroups`, as in the original Oz.
    Groups,
}

/// An operation on a pod that a grant can permit.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum Operation {
    /// Run a command: `pods/exec`.
    Exec,
    /// Attach to the running process: `pods/attach`.
    Attach,
    /// Forward ports: `pods/portforward`.
    PortForward,
    /// Read logs: `pods/log`.
    Log,
    /// Add a container and attach to it: `pods/ephemeralcontainers`.
    Debug,
}

/// The requirement that a session ends with its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Sessions {
    /// Sessions that oz cannot terminate are permitted, and the request reports them.
    #[default]
    BestEffort,
    /// Sessions that oz cannot terminate are denied.
    Required,
    /// Every session goes through the gate, which terminates it.
    Gate,
}

/// The behaviour of a grant when its pod is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnPodReplacement {
    /// The grant ends.
    #[default]
    Revoke,
    /// The grant moves to another pod of the same workload.
    Follow,
}

/// The effect of a change of the template on grants made from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnTemplateChange {
    /// The grants do not change.
    #[default]
    Keep,
    /// The grants are revoked.
    Revoke,
}
