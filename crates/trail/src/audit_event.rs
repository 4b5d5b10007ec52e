//! AuditEvent: one record in the cluster. Cluster-scoped, since deleting a namespace would erase
//! its trail, and owned by nothing, so that nothing collects it.

#![allow(
    unreachable_pub,
    reason = "the derive KubeSchema puts a copy of the struct, still pub, into a function"
)]

use kube::{CustomResource, KubeSchema};
use oz_api::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE};
use serde::{Deserialize, Serialize};

use crate::{Link, Record};
use oz_api::kind::{Family, Kind, Role};

/// The audit record, and its place in the chain of its writer. Cannot be changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "AuditEvent",
    plural = "auditevents",
    derive = "PartialEq",
    derive = "Default",
    shortname = "oza",
    doc = "One audit record of oz. Only oz writes it; `ozctl audit verify` checks whether any is \
        missing or changed.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(AUDIT_IS_IMMUTABLE).field_path(".spec"),
    printcolumn = r#"{"name":"Time", "type":"string", "jsonPath":".spec.time", "description":"Time of the decision"}"#,
    printcolumn = r#"{"name":"User", "type":"string", "jsonPath":".spec.user.user", "description":"User"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.action", "description":"Action"}"#,
    printcolumn = r#"{"name":"Decision", "type":"string", "jsonPath":".spec.decision", "description":"Decision about the action"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".spec.reason", "description":"Reason of the decision"}"#,
    printcolumn = r#"{"name":"Namespace", "type":"string", "jsonPath":".spec.request.namespace", "description":"Namespace of the request"}"#,
    printcolumn = r#"{"name":"Pod", "type":"string", "jsonPath":".spec.pod.name", "description":"Pod"}"#,
    printcolumn = r#"{"name":"Request", "type":"string", "jsonPath":".spec.request.name", "description":"Request", "priority":1}"#,
    printcolumn = r#"{"name":"Writer", "type":"string", "jsonPath":".spec.component", "description":"Process that wrote the record", "priority":1}"#,
    printcolumn = r#"{"name":"Message", "type":"string", "jsonPath":".spec.message", "description":"Description of the event", "priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AuditEventSpec {
    /// Place in the chain.
    #[serde(flatten)]
    pub link: Link,
    /// Content of the record.
    #[serde(flatten)]
    pub record: Record,
}

impl Kind for AuditEvent {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Record;
    const NAME: &'static str = "auditevent";

    oz_api::defined!();
}

const AUDIT_IS_IMMUTABLE: &str = "spec is immutable: an audit record is never changed";
