//! AccessLock: as long as it holds, a user or group gets no access, or no user gets access in a namespace or by a
//! template. It has no status, since oz records nothing on it.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::LockTarget;
use crate::kind::{Family, Kind, Role};
use crate::lock::{LOCK_IS_IMMUTABLE, LOCK_IS_IMMUTABLE_MESSAGE, ONE_TARGET, ONE_TARGET_MESSAGE};
use crate::optional::not_empty;
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, optional_timestamp};

/// Target, reason and expiry of the lock. Only until can be changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "AccessLock",
    plural = "accesslocks",
    derive = "PartialEq",
    derive = "Default",
    shortname = "al",
    category = "oz",
    doc = "Revokes all access of a user, of a group, in a namespace or by a template, and denies \
        new access as long as the lock exists.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(ONE_TARGET).message(ONE_TARGET_MESSAGE).field_path(".spec.target"),
    validation = Rule::new(LOCK_IS_IMMUTABLE).message(LOCK_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"User", "type":"string", "jsonPath":".spec.target.user", "description":"Locked user"}"#,
    printcolumn = r#"{"name":"Group", "type":"string", "jsonPath":".spec.target.group", "description":"Group whose members are locked"}"#,
    printcolumn = r#"{"name":"Namespace", "type":"string", "jsonPath":".spec.target.namespace", "description":"Locked namespace"}"#,
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.target.template.name", "description":"Locked template"}"#,
    printcolumn = r#"{"name":"Until", "type":"string", "jsonPath":".spec.until", "description":"Expiry of the lock"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".spec.reason", "description":"Reason for the lock", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the lock was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessLockSpec {
    /// The user, group, namespace or template that is locked: exactly one. Cannot be changed.
    pub target: LockTarget,

    /// Reason for the lock, from 1 to 1024 characters. Denied users see it, and the audit record contains
    /// it. Cannot be changed.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,

    /// Expiry of the lock, in RFC 3339: the first instant at which it has no effect. It can be changed, and
    /// is at most ten years ahead. If unset, the lock holds until it is deleted.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub until: Option<String>,

    /// Exempts emergencies (spec.emergency of a request) from the lock. By default the lock denies them as
    /// well.
    #[serde(default)]
    pub except_emergency: bool,
}

impl Kind for AccessLock {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Lock;
    const NAME: &'static str = "accesslock";

    crate::defined!();
}
