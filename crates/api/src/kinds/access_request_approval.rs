//! AccessRequestApproval: the approval or denial of one user for one request. It has no owner, so that neither an
//! accident nor an attack deletes it before its request: the operator deletes it some time after the request is gone.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::AccessRequestReference;
use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE};

/// The answer of whoever creates it. Cannot be changed; it can be deleted while the request waits.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "AccessRequestApproval",
    plural = "accessrequestapprovals",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    shortname = "ara",
    category = "oz",
    doc = "Approves or denies one access request, in the name of whoever creates it.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(APPROVAL_IS_IMMUTABLE).field_path(".spec"),
    printcolumn = r#"{"name":"Request", "type":"string", "jsonPath":".spec.accessRequestRef.name", "description":"What it is about"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.accessRequestRef.kind", "description":"Kind of the request", "priority":1}"#,
    printcolumn = r#"{"name":"Approval", "type":"boolean", "jsonPath":".spec.approval", "description":"Whether it approves"}"#,
    printcolumn = r#"{"name":"By", "type":"string", "jsonPath":".metadata.annotations.crds\\.wizardofoz\\.co/requested-by", "description":"Who answered"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".spec.reason", "description":"Why", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was given"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessRequestApprovalSpec {
    /// The request that it is about.
    pub access_request_ref: AccessRequestReference,

    /// Whether the request is approved. One denial ends it.
    pub approval: bool,

    /// Why. Kept in the audit record.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// What was seen: `status.approval.digest` of the request. It covers who asked, the template and its
    /// rules; if any of it changes, the answer counts for nothing.
    #[schemars(length(min = 1, max = 128))]
    pub digest: String,
}

impl Kind for AccessRequestApproval {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Approval;
    const NAME: &'static str = "accessrequestapproval";

    crate::defined!();
}

const APPROVAL_IS_IMMUTABLE: &str =
    "spec is immutable: delete the answer while the request waits, and give another";
