//! `spec.target` of an AccessLock: the locked user, group, namespace or template.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::optional::not_empty;

/// The rule for a lock as a whole.
pub(crate) const ONE_TARGET: &str = "!has(self.spec) || [has(self.spec.target.user), \
    has(self.spec.target.group), has(self.spec.target.__namespace__), has(self.spec.target.template)]\
    .filter(given, given).size() == 1";
/// The message of [`ONE_TARGET`].
pub(crate) const ONE_TARGET_MESSAGE: &str =
    "must be exactly one of user, group, namespace and template";
/// The rule that target and reason do not change; the expiry may change.
pub(crate) const LOCK_IS_IMMUTABLE: &str = "has(self.spec) == has(oldSelf.spec) \
    && (!has(self.spec) || self.spec.target == oldSelf.spec.target \
    && self.spec.reason == oldSelf.spec.reason \
    && self.spec.exceptEmergency == oldSelf.spec.exceptEmergency)";
/// The message of [`LOCK_IS_IMMUTABLE`].
pub(crate) const LOCK_IS_IMMUTABLE_MESSAGE: &str =
    "only until can be changed: create another lock, then delete this one";

/// A name is compared character by character. A name with these characters would look like another, or like a pattern.
const NAME: &str = r"^[^*?\x00-\x20\x7f]([^*?\x00-\x1f\x7f]*[^*?\x00-\x20\x7f])?$";
/// The name of a namespace.
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The name of a template.
const TEMPLATE: &str = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";

/// Target of a lock: exactly one of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockTarget {
    /// User or service account, by the user name of the API server, compared exactly. The lock applies to
    /// access that the user requested, to transient bindings that name the user, and to harness runs that
    /// the user submitted.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 512), regex(pattern = NAME))]
    pub user: Option<String>,

    /// Group, compared exactly. The lock applies to users who were in this group when they created their
    /// requests, and to access that is bound to the group.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 512), regex(pattern = NAME))]
    pub group: Option<String>,

    /// Namespace. The lock applies to all access and harness runs in it.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: Option<String>,

    /// Template. The lock applies to all access by the template of this name, of any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<LockedTemplate>,
}

/// Reference to a template of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockedTemplate {
    /// Namespace of the template.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: String,

    /// Name of the template.
    #[schemars(length(min = 1, max = 253), regex(pattern = TEMPLATE))]
    pub name: String,
}
