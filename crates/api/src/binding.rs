//! The common parts of both kinds of transient binding: their subjects and role, and their status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::timestamp;
use super::{ApprovalStatus, Ending, Phase};

/// The API group of RBAC.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The rule that a role cannot be exchanged.
pub(crate) const ROLE_IS_IMMUTABLE: &str = "self == oldSelf";
/// The message of [`ROLE_IS_IMMUTABLE`].
pub(crate) const ROLE_IS_IMMUTABLE_MESSAGE: &str =
    "roleRef is immutable: create a new object instead";
/// The rule that a window has exactly one end.
pub(crate) const ONE_END: &str =
    "!has(self.spec) || has(self.spec.validUntil) != has(self.spec.duration)";
/// The message of [`ONE_END`].
pub(crate) const ONE_END_MESSAGE: &str = "exactly one of validUntil and duration must be set";
/// The rule that the end of a window follows its beginning.
pub(crate) const END_AFTER_BEGIN: &str = "!has(self.spec) || !has(self.spec.validUntil) \
    || !has(self.spec.validFrom) || self.spec.validUntil > self.spec.validFrom";
/// The message of [`END_AFTER_BEGIN`].
pub(crate) const END_AFTER_BEGIN_MESSAGE: &str = "must be later than validFrom";
/// The message of the rule that the spec of a binding does not change.
pub(crate) const BINDING_IS_IMMUTABLE_MESSAGE: &str = "spec is immutable: delete the object to revoke the binding, create a new one for another \
        window";

const SUBJECT_NAMESPACE: &str = "(self.kind == 'ServiceAccount') \
    == (has(self.__namespace__) && self.__namespace__ != '')";
const SUBJECT_NAMESPACE_MESSAGE: &str =
    "a ServiceAccount needs its namespace; a User or Group has none";

/// Reference to the role of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleReference {
    /// API group of the role; only rbac.authorization.k8s.io is valid.
    #[serde(default = "rbac_group")]
    #[x_kube(validation = Rule::new("self == 'rbac.authorization.k8s.io'").message("must be rbac.authorization.k8s.io"))]
    #[schemars(length(max = 253))]
    pub api_group: String,

    /// Kind of the role: Role or ClusterRole. A TransientClusterRoleBinding requires ClusterRole.
    pub kind: RoleKind,

    /// Name of the role.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

fn rbac_group() -> String {
    RBAC_GROUP.to_owned()
}

/// Kind of a role.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum RoleKind {
    /// A role of one namespace.
    Role,
    /// A role of the cluster.
    #[default]
    ClusterRole,
}

impl RoleKind {
    /// Returns the resource, as RBAC rules name it.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
        }
    }
}

/// A user, group or service account that gets the role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(SUBJECT_NAMESPACE).message(SUBJECT_NAMESPACE_MESSAGE))]
pub struct BindingSubject {
    /// Kind of the subject: User, Group or ServiceAccount.
    pub kind: SubjectKind,

    /// Name of the user, group or service account.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,

    /// Namespace of the service account. Required for service accounts, and invalid for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// API group of the subject. If unset, the API group of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
}

/// Kind of a subject.
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
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum SubjectKind {
    /// A user, by name.
    #[default]
    User,
    /// All members of a group.
    Group,
    /// A service account, by namespace and name.
    ServiceAccount,
}

/// Observed state of a transient binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    /// Conditions of the binding, one of each type: Ready, Effective, Approved, TicketAccepted, Emergency,
    /// NameConflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Phase of the binding: Pending, Active, or one of the final phases. Expired: the window is over. Revoked:
    /// the binding ended before that. Denied and Failed: it was never created.
    #[serde(default)]
    pub phase: Phase,

    /// User who created the object, by the user name of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,

    /// Time at which oz created the RoleBinding or ClusterRoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub activated_at: Option<Timestamp>,

    /// Expiry of the binding. Does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// Next time at which the state changes without another event. Unset if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub next_transition_time: Option<Timestamp>,

    /// Name of the RoleBinding or ClusterRoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_name: Option<String>,

    /// UID of the RoleBinding or ClusterRoleBinding, by which oz deletes it even if its labels were
    /// changed.
    #[serde(
        default,
        rename = "bindingUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub binding_uid: Option<String>,

    /// Approvals that access policies require. Unset if none are required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStatus>,

    /// State of the expiry or revocation. Unset until it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl BindingStatus {
    /// Returns the end of the binding's window; `None` if the role was never bound.
    #[must_use]
    pub fn remembers_until(&self) -> Option<Timestamp> {
        self.activated_at.and(self.expires_at)
    }
}
