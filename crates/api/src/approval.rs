//! `spec.accessConfig.approval`: the users who must approve before a request is granted.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};

/// The value of `approval.timeout` if a template names none.
pub const DEFAULT_APPROVAL_TIMEOUT: &str = "30m";

/// Who has to agree before a request is granted. All rules must hold. The requester counts for none of them,
/// and every other person for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalConfig {
    /// What must hold, all of it: one of sre and one of security is two rules.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(min = 1, max = 8))]
    pub rules: Vec<ApprovalRule>,

    /// A CEL expression that is true for the requests that the rules apply to, over `requester`, `request`,
    /// `template`, `namespaceLabels`, `operations`, `active` and `now` in UTC. Absent means all. If it
    /// cannot be evaluated, the rules apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub when: Option<String>,

    /// How long after its creation a request can be approved, as a number with a unit for each part: 30m,
    /// 1h30m. From then on it is over.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: String,

    /// Whether an answer must give a reason, be it an approval or a denial.
    #[serde(default)]
    pub require_reason: bool,
}

/// One rule: so many people of these groups and users must approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRule {
    /// What the rule is called, where it is said what is waited for.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// Groups whose members may approve. Service accounts are not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may approve, by the name that the API server knows them by; service accounts too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,

    /// How many of them must.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub approvals: i32,

    /// Whether those who are told of what happens (notifications of the chart) are told that it waits for this rule.
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

/// What a status says of the approvals that a request waits for, or waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// What an answer must name in `spec.digest`: of the request, of its template and of the rules, as they
    /// are now.
    pub digest: String,

    /// Until when the request can be approved.
    #[schemars(schema_with = "super::schema::timestamp")]
    pub until: jiff::Timestamp,
}

/// A kind of request that can be approved.
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
    /// A request for access to a pod that runs.
    #[default]
    ExecAccessRequest,
    /// A request for a pod of one's own.
    PodAccessRequest,
    /// Rights in one namespace for a time.
    TransientRoleBinding,
    /// Rights in the whole cluster for a time; answers to it are in the namespace of oz.
    TransientClusterRoleBinding,
}

/// The request or transient binding that an answer is about: that one, and none of its name that comes later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRequestReference {
    /// Kind of the request.
    pub kind: ApprovedKind,

    /// Name of the request, in the namespace of the answer, or of what belongs to the whole cluster.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// UID of the request.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}
