//! AccessRequestApproval: the approval or denial of one user for one request. It has no owner, so that neither an
//! accident nor an attack deletes it before its request: the operator deletes it some time after the request is gone.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::AccessRequestReference;
use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE};

/// The approval or denial of the user who creates the object. Cannot be changed; it can be deleted while
/// the request is pending.
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
    doc = "Approves or denies one access request, by the user who creates it.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(APPROVAL_IS_IMMUTABLE).field_path(".spec"),
    printcolumn = r#"{"name":"Request", "type":"string", "jsonPath":".spec.accessRequestRef.name", "description":"Approved or denied request"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.accessRequestRef.kind", "description":"Kind of the request", "priority":1}"#,
    printcolumn = r#"{"name":"Approval", "type":"boolean", "jsonPath":".spec.approval", "description":"Whether the request is approved"}"#,
    printcolumn = r#"{"name":"By", "type":"string", "jsonPath":".metadata.annotations.crds\\.wizardofoz\\.co/requested-by", "description":"User who approved or denied"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".spec.reason", "description":"Reason for the decision", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the decision"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessRequestApprovalSpec {
    /// The request, transient binding or harness run that is approved or denied.
    pub access_request_ref: AccessRequestReference,

    /// Decision: true approves the request, false denies it. One denial ends the request.
    pub approval: bool,

    /// Reason for the decision, of at most 1024 characters; the audit record contains it. Required if the
    /// template or an access policy sets requireReason for approvals.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// Digest of the reviewed content: `status.approval.digest` of the request. It covers the requester,
    /// the template and the approval rules. If any of them changes, the approval does not count.
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
    "spec is immutable: delete the approval while the request is pending, and create another";
