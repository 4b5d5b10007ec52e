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
pub(crate) const BINDING_IS_IMMUTABLE_MESSAGE: &str =
    "spec is immutable: delete the object to end it, create a new one for another window";

const SUBJECT_NAMESPACE: &str = "(self.kind == 'ServiceAccount') \
    == (has(self.__namespace__) && self.__namespace__ != '')";
const SUBJECT_NAMESPACE_MESSAGE: &str =
    "a ServiceAccount needs its namespace; a User or Group has none";

/// The role that is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleReference {
    /// API group of the role: rbac.authorization.k8s.io.
    #[serde(default = "rbac_group")]
    #[x_kube(validation = Rule::new("self == 'rbac.authorization.k8s.io'").message("must be rbac.authorization.k8s.io"))]
    #[schemars(length(max = 253))]
    pub api_group: String,

    /// Role or ClusterRole.
    pub kind: RoleKind,

    /// Name of the role.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

fn rbac_group() -> String {
    RBAC_GROUP.to_owned()
}

/// Which kind of role is bound.
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

/// Who is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(SUBJECT_NAMESPACE).message(SUBJECT_NAMESPACE_MESSAGE))]
pub struct BindingSubject {
    /// User, Group or ServiceAccount.
    pub kind: SubjectKind,

    /// Name of the user, group or service account.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,

    /// Namespace of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// API group of the subject. Absent means the kind's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
}

/// Which kind of subject is bound.
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
    /// Everybody in a group.
    Group,
    /// A service account, by namespace and name.
    ServiceAccount,
}

/// What became of a transient binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    /// What was checked and what came of it, one for each type: Ready, Effective, Approved, NameConflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// How far it came: Pending, Active, then Expired or Revoked; or Denied or Failed.
    #[serde(default)]
    pub phase: Phase,

    /// The user who created it, as the API server saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,

    /// When the binding was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub activated_at: Option<Timestamp>,

    /// When it ends. Never moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub expires_at: Option<Timestamp>,

    /// The next instant at which time alone changes something; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub next_transition_time: Option<Timestamp>,

    /// Name of the RoleBinding or ClusterRoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_name: Option<String>,

    /// UID of the RoleBinding or ClusterRoleBinding: by it the binding is ended, whatever is left of its
    /// labels.
    #[serde(
        default,
        rename = "bindingUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub binding_uid: Option<String>,

    /// What others are asked who have to approve it, where a policy says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStatus>,

    /// How it ends, once that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,

    /// The generation that this status is about.
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
