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

/// Who may get access, to do what, for how long, and what they are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessConfig {
    /// Groups whose members may request access. May be empty if allowedUsers is not.
    #[schemars(length(max = 256), inner(length(max = 512)))]
    pub allowed_groups: Vec<String>,

    /// Users who may request access, by the name that the API server knows them by, in addition
    /// to the members of allowedGroups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 512)))]
    pub allowed_users: Vec<String>,

    /// Whether service accounts may request access. They also have to be among allowedGroups or
    /// allowedUsers.
    #[serde(default)]
    pub allow_service_accounts: bool,

    /// How long access lasts if the request does not say, as a number with a unit for each part:
    /// 30m, 1h30m. Must not exceed maxDuration.
    #[serde(default = "default_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub default_duration: String,

    /// The longest that access can last. A request for more gets this much.
    #[serde(default = "default_max_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: String,

    /// What to tell the user when access is ready: a Go text/template over the pod's metadata, as
    /// in `kubectl exec -ti -n {{ .Metadata.Namespace }} {{ .Metadata.Name }} -- /bin/sh`.
    #[serde(default = "default_access_command")]
    #[schemars(length(max = 4096))]
    pub access_command: String,

    /// Who is bound to the grant. Requester: the one who asked, nobody else. Groups: every group
    /// of allowedGroups, as the original Oz did; then one member's request opens the pod to all.
    #[serde(default)]
    pub bind: Bind,

    /// What a grant permits: Exec, Attach, PortForward, Log; and Debug, which is to add a container to the pod
    /// (kubectl debug) and needs sessions: Gate and debug.
    #[serde(default = "default_operations")]
    #[schemars(length(min = 1, max = 5), extend("x-kubernetes-list-type" = "set"))]
    pub operations: Vec<Operation>,

    /// The containers that may be entered. Empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub containers: Vec<String>,

    /// A CEL expression that a command must satisfy, over `argv`, `tty`, `stdin` and `container`.
    /// Takes effect where oz sees the command: in enforcing namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub command_policy: Option<String>,

    /// Whether a session must be known to end with the grant. BestEffort: sessions that cannot be
    /// cut are let through, and the request says so in its condition SessionsCut. Required: they
    /// are refused. Gate: the requester gets to the pod through oz's gate alone, which closes every
    /// session at its end; the operator needs to know of a gate (gate.enabled).
    #[serde(default)]
    pub sessions: Sessions,

    /// What is kept of sessions; only with `sessions: Gate`, and where the gate knows where to keep it. Absent means
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingConfig>,

    /// Who has to watch a session while it is open: it opens once they do, is held when they go, and ends a minute
    /// later. Only with `sessions: Gate`. Absent means nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moderation: Option<ModerationConfig>,

    /// Which containers may be added to the pod; with the operation Debug, and only with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug: Option<DebugConfig>,

    /// How long nothing may be said in a session, either way, before the gate ends it, such as 10m; at least
    /// 10s. Only with sessions: Gate. Absent means that a session may be silent for as long as access lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// What happens when the pod of a grant is replaced. End: the grant ends. Successor: it moves
    /// to another pod of the same workload.
    #[serde(default)]
    pub follow: Follow,

    /// What a change of this template does to the grants made from it. Keep: they stay as they
    /// were granted. Revoke: they end.
    #[serde(default)]
    pub on_template_change: OnTemplateChange,

    /// Whether audit records keep the arguments of commands. By default they keep a digest, since
    /// arguments may hold secrets.
    #[serde(default)]
    pub record_arguments: bool,

    /// Whether a request must give a reason.
    #[serde(default)]
    pub require_reason: bool,

    /// Which ticket a request must name (spec.ticket). Absent means none. An emergency needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<TicketConfig>,

    /// Who has to agree before a request is granted. Absent means nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalConfig>,

    /// Who gets in without anybody's approval if their request says that it is an emergency (spec.emergency),
    /// and who looks at it afterwards. Absent means nobody.
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
            follow: Follow::default(),
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

/// Who is bound to a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Bind {
    /// The one who asked, nobody else.
    #[default]
    Requester,
    /// Every group of `allowedGroups`, as the original did.
    Groups,
}

/// Something that a grant can permit on a pod.
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

/// Whether a session must be known to end with its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Sessions {
    /// Sessions that cannot be cut are let through, and that is said.
    #[default]
    BestEffort,
    /// Sessions that cannot be cut are refused.
    Required,
    /// Every session goes through the gate, which closes it.
    Gate,
}

/// What happens when the pod of a grant is replaced by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Follow {
    /// The grant ends.
    #[default]
    End,
    /// The grant moves to another pod of the same workload.
    Successor,
}

/// What a change of the template does to grants made from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnTemplateChange {
    /// They stay as they were granted.
    #[default]
    Keep,
    /// They end.
    Revoke,
}
