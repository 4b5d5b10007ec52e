//! AccessLock: as long as it holds, a user or group gets no access, or no user gets access in a namespace or by a
//! template. It has no status, since oz records nothing on it.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::LockTarget;
use crate::kind::{Family, Kind, Role};
use crate::lock::{LOCK_IS_IMMUTABLE, LOCK_IS_IMMUTABLE_MESSAGE, ONE_TARGET, ONE_TARGET_MESSAGE};
use crate::optional::not_empty;
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, optional_timestamp};

/// What is locked, why and until when. Only until can be changed.
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
    doc = "Ends all access of a user, of a group, in a namespace or by a template, and lets nobody have more of it as long as the lock is there.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(ONE_TARGET).message(ONE_TARGET_MESSAGE).field_path(".spec.target"),
    validation = Rule::new(LOCK_IS_IMMUTABLE).message(LOCK_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"User", "type":"string", "jsonPath":".spec.target.user", "description":"Who is locked"}"#,
    printcolumn = r#"{"name":"Group", "type":"string", "jsonPath":".spec.target.group", "description":"Whose members are locked"}"#,
    printcolumn = r#"{"name":"Namespace", "type":"string", "jsonPath":".spec.target.namespace", "description":"Where nobody gets in"}"#,
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.target.template.name", "description":"By which template nobody gets in"}"#,
    printcolumn = r#"{"name":"Until", "type":"string", "jsonPath":".spec.until", "description":"When it ends by itself"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".spec.reason", "description":"Why", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was made"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessLockSpec {
    /// Who or what is locked.
    pub target: LockTarget,

    /// Why. Whoever is locked out is told, and it is kept in the audit record.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,

    /// The first instant at which it holds no more, in RFC 3339. Without it, it holds until it is removed.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub until: Option<String>,

    /// Whether emergencies are let through all the same.
    #[serde(default)]
    pub except_emergency: bool,
}

impl Kind for AccessLock {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Lock;
    const NAME: &'static str = "accesslock";

    crate::defined!();
}
