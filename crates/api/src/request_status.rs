//! `status` of both kinds of request: the phase, the grant, and the expiry.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::timestamp;
use super::{ApprovalStatus, Ending};

/// Observed state of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// Conditions of the request, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// True if the access can be used now.
    #[serde(default)]
    pub ready: bool,

    /// Instructions for the use of the access: accessCommand of the template for this pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_message: Option<String>,

    /// Name of the pod to which access is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// Phase of the request: Pending, Starting (the dedicated pod is not ready), Active, or one of the final
    /// phases. Expired: the access or the time for its approval is over. Revoked: the access ended before its
    /// expiry. Denied: the requester is not permitted to have it. Failed: it cannot be granted.
    #[serde(default)]
    pub phase: Phase,

    /// User who created the request, by the user name of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,

    /// Time of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub granted_at: Option<Timestamp>,

    /// Expiry of the access: the granted duration after the creation of the request or, if it required
    /// approvals, after the grant. Does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// UID of the pod to which access is granted. The access does not include a later pod of the same name.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// Name of the Role that grants the access, which is reserved for oz. Unset for grants of releases
    /// without reserved names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,

    /// True if the pod is reachable only through oz's gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,

    /// Digest of the template's spec at the time of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<String>,

    /// Digest of the dedicated pod as oz created it. Unset for other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_digest: Option<String>,

    /// Approvals that the request requires. Unset if it requires none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStatus>,

    /// State of the expiry or revocation. Unset until it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,

    /// RoleBindings of other users or controllers to the Role that the request would get, at most 64, as
    /// audit records report them. While they exist, access is not granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub foreign_bindings: Vec<String>,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The phase of a request. The last four are final.
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
    /// The request is not decided yet.
    #[default]
    Pending,
    /// Access is granted, and the dedicated pod has not been ready yet.
    Starting,
    /// Access is granted; `ready` reports whether it can be used.
    Active,
    /// The access, or the time in which it could be granted, has ended.
    Expired,
    /// Access was granted and was revoked before its expiry.
    Revoked,
    /// Access was denied to the requester.
    Denied,
    /// Access was not granted and cannot be granted for this request.
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
