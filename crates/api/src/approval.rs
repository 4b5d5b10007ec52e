//! `spec.accessConfig.approval`: the users who must approve before a request is granted.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};

/// The value of `approval.timeout` if a template names none.
pub const DEFAULT_APPROVAL_TIMEOUT: &str = "30m";

/// Approvals that a request requires before it is granted. All rules must be satisfied. The requester
/// counts for none of them, and every other person for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalConfig {
    /// Rules that must all be satisfied, from 1 to 8: one approval of sre and one of security are two
    /// rules.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(min = 1, max = 8))]
    pub rules: Vec<ApprovalRule>,

    /// CEL expression that selects the requests to which the rules apply. Variables: `requester`,
    /// `request`, `template`, `namespaceLabels`, `operations`, `active` and `now` in UTC. If unset, the
    /// rules apply to all requests; if the evaluation fails, they apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub when: Option<String>,

    /// Time from the creation of a request until which it can be approved, in units from h to ns, such as 30m. A
    /// request that is not approved by then is Expired.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: String,

    /// Requires a reason from each approval and denial.
    #[serde(default)]
    pub require_reason: bool,

    /// On-call checks, at most 8. While one of them accepts the requester, these rules require no approval;
    /// access ends when that check stops accepting the requester. The rules of access policies stay. Not
    /// supported for harness runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub unless: Vec<OnCallCheck>,
}

/// An on-call check that replaces approvals while it accepts the requester.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct OnCallCheck {
    /// Name of an on-call check in the operator's configuration (the chart's value tickets.checks).
    #[schemars(length(min = 1, max = 63))]
    pub check: String,

    /// Group that the requester must be a member of. The check gets it as {group} in its URL. Any requester if
    /// unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub group: Option<String>,
}

/// A number of approvals by members of these groups or by these users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRule {
    /// Name of the rule, in messages about missing approvals; at most 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// Groups that may approve, at most 64. Service accounts do not count as members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may approve, by the user name of the API server, at most 64. Service accounts count if
    /// they are named here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,

    /// Number of approvals that the rule requires, from 1 to 8.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub approvals: i32,

    /// Sends a notification (the chart's value notifications) when a request requires approvals of this
    /// rule. True if unset.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub notify: bool,

    /// Users and groups that may approve under this rule in addition, after a time without the approvals. None
    /// if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalation>,
}

/// Additional approvers of a rule, after a time. The number of approvals stays, and a person counts for one
/// rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Escalation {
    /// Time from the creation of a request until these users and groups may approve, in units from h to ns, such
    /// as 15m. Must be shorter than the timeout of the approvals.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub after: String,

    /// Groups that may approve from then on, at most 64. Service accounts do not count as members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may approve from then on, at most 64. Service accounts count if they are named here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,

    /// Sends a notification (ApprovalEscalated) at that time, if the rule is not satisfied. True if unset.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub notify: bool,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_yes(value: &bool) -> bool {
    *value
}

fn default_timeout() -> String {
    DEFAULT_APPROVAL_TIMEOUT.to_owned()
}

fn one() -> i32 {
    1
}

/// The approvals that a request requires, in its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// Digest that an approval or denial must contain in `spec.digest`: of the request, its template and
    /// the approval rules in their current state.
    pub digest: String,

    /// Time until which the request can be approved.
    #[schemars(schema_with = "super::schema::timestamp")]
    pub until: jiff::Timestamp,

    /// Rules that are not satisfied, and have additional approvers by now, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub escalated: Vec<String>,
}

/// Kind of a request that can be approved.
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
    strum::EnumString,
)]
pub enum ApprovedKind {
    /// A request for access to a running pod.
    #[default]
    ExecAccessRequest,
    /// A request for a dedicated pod.
    PodAccessRequest,
    /// A time-limited role binding in one namespace.
    TransientRoleBinding,
    /// A time-limited role binding in the whole cluster; its approvals are in the namespace of oz.
    TransientClusterRoleBinding,
    /// A run of an AI agent.
    HarnessRun,
}

/// Reference to a request, transient binding or harness run by name and UID, so that it does not refer to a later object
/// of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRequestReference {
    /// Kind of the request.
    pub kind: ApprovedKind,

    /// Name of the request, which is in the namespace of the referring object or cluster-scoped.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// UID of the request.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}
