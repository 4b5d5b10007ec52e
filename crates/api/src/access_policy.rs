//! The effects of an AccessPolicy on the requests that it matches, and its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};
use super::{ApprovalRule, TicketConfig};

/// What holds for a request that a policy matches, whatever its template says. Of several policies the
/// strictest of each holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyThen {
    /// The request is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<PolicyDenial>,

    /// Others have to agree, beside those whom the template names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<PolicyApproval>,

    /// Whether the request must give a reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,

    /// Which ticket the request must name, beside what the template says of it. An emergency needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_ticket: Option<TicketConfig>,

    /// The longest that access can last. A request for more gets this much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: Option<String>,
}

/// That a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDenial {
    /// What whoever asks is told: why, and what to do instead.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,
}

/// Who has to agree, as a template says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyApproval {
    /// What must hold, all of it, beside the rules of the template. One that is the same as a rule of the
    /// template or of another policy holds with it.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(min = 1, max = 8))]
    pub rules: Vec<ApprovalRule>,

    /// How long after its creation a request can be approved, if the template allows no less. 30m by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// Whether an answer must give a reason, be it an approval or a denial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,
}

/// What is known about a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicyStatus {
    /// What was checked and what came of it, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Whether the policy can be asked. One that cannot refuses every request.
    #[serde(default)]
    pub ready: bool,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
