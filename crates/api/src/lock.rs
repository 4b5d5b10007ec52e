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
    "only until can be changed: make another lock, then remove this one";

/// A name is compared character by character. A name with these characters would look like another, or like a pattern.
const NAME: &str = r"^[^*?\x00-\x20\x7f]([^*?\x00-\x1f\x7f]*[^*?\x00-\x20\x7f])?$";
/// The name of a namespace.
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The name of a template.
const TEMPLATE: &str = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";

/// Who or what is locked: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockTarget {
    /// A user or service account, by the name that the API server knows them by.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 512), regex(pattern = NAME))]
    pub user: Option<String>,

    /// Everybody who was in this group when they asked, or whose access is bound to it.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 512), regex(pattern = NAME))]
    pub group: Option<String>,

    /// All access in this namespace.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: Option<String>,

    /// All access by this template, and by one of the same name of the other kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<LockedTemplate>,
}

/// A template, of either kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockedTemplate {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: String,

    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = TEMPLATE))]
    pub name: String,
}
