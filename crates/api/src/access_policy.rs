//! The effects of an AccessPolicy on the requests that it matches, and its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};
use super::{ApprovalRule, EmergencyConfig, OnCallCheck, TicketConfig};

/// The effects of an access policy on the requests that it selects, in addition to the template. Of several
/// access policies, the strictest effect of each kind applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyThen {
    /// Denies the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<PolicyDenial>,

    /// Approvals that the request requires, in addition to those of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<PolicyApproval>,

    /// Requires a reason (spec.reason) from the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,

    /// Change ticket that the request must name (spec.ticket), in addition to the requirement of the
    /// template. Emergencies never require one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_ticket: Option<TicketConfig>,

    /// Terms for emergencies of transient bindings (spec.emergency), which have no template. A transient
    /// binding can be an emergency if an access policy has these terms, and all access policies that require
    /// approvals or a change ticket of it have them. It has no effect on other kinds, which have the terms of
    /// their template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<EmergencyConfig>,

    /// Maximum duration of access, in units from h to ns, such as 30m. A request for more is shortened to
    /// it. If unset, only the template limits the duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: Option<String>,
}

/// The denial of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDenial {
    /// Message for the requester, of at most 512 characters: the cause of the denial, and an alternative.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,
}

/// Approvals that an access policy requires.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyApproval {
    /// Rules that must all be satisfied, from 1 to 8, in addition to those of the template. A rule that
    /// equals a rule of the template or of another access policy, except for its name, is satisfied
    /// together with it.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(min = 1, max = 8))]
    pub rules: Vec<ApprovalRule>,

    /// Time from the creation of a request until which it can be approved, in units from h to ns. 30m if
    /// unset. A shorter timeout of the template applies instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// Requires a reason from each approval and denial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,

    /// On-call checks, at most 8. While one of them accepts the requester of an access request, the rules of
    /// this access policy require no approval; access ends when that check stops accepting the requester. The
    /// rules of the template and of other access policies stay, and so do those for transient bindings and
    /// harness runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub unless: Vec<OnCallCheck>,
}

/// Observed state of an access policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicyStatus {
    /// Conditions of the access policy, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// True if the access policy can be evaluated. An access policy that is not ready denies every request.
    #[serde(default)]
    pub ready: bool,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
