//! `status` of both kinds of request: the phase, the grant, and the expiry.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::timestamp;
use super::{ApprovalStatus, Ending};

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// What was checked and what came of it, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Whether the access can be used now.
    #[serde(default)]
    pub ready: bool,

    /// How to use the access: the template's accessCommand for this pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_message: Option<String>,

    /// The pod that access was granted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// How far the request came: Pending, Active, then Expired or Revoked; or Denied or Failed.
    #[serde(default)]
    pub phase: Phase,

    /// The user who asked, as the API server saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,

    /// When access was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub granted_at: Option<Timestamp>,

    /// When access ends: the request's creation plus what was granted, or the grant plus that if it took
    /// approvals. Never moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// UID of the pod that access was granted to. A pod of the same name that comes later is
    /// another one.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// Name of the Role that access was granted by; its names are reserved for oz. Not told of grants of before there were
    /// such names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,

    /// Whether the pod is reached through oz's gate alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,

    /// Digest of the template's spec as it was when access was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<String>,

    /// Digest of the pod as it was made from the template, if it was made for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_digest: Option<String>,

    /// What an approval must name, and until when it counts; if the request takes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStatus>,

    /// How access ends, once that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,

    /// RoleBindings of others to the Role that the request would get, as they are on record: while they
    /// are there nothing is granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub foreign_bindings: Vec<String>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How far a request came. The last four are terminal: none of them is ever left.
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
pub enum Phase {
    /// Nothing is granted yet.
    #[default]
    Pending,
    /// Access is granted, and the pod that was made for it has not been ready yet.
    Starting,
    /// Access is granted; `ready` says whether it can be used already.
    Active,
    /// Access was granted and its time is over.
    Expired,
    /// Access was granted and taken back early.
    Revoked,
    /// Access was not granted: the requester may not have it.
    Denied,
    /// Access was not granted, and never can be for this request.
    Failed,
}

impl Phase {
    /// Checks whether the request is granted and the grant has not ended.
    #[must_use]
    pub fn is_granted(self) -> bool {
        matches!(self, Self::Starting | Self::Active)
    }

    /// Checks whether the phase is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Starting | Self::Active => false,
            Self::Expired | Self::Revoked | Self::Denied | Self::Failed => true,
        }
    }
}
