//! PodAccessRequest: one user requests a dedicated pod, made from a workload.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{
    POD_REQUEST_DURATION, SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE,
    SPEC_IS_IMMUTABLE_MESSAGE,
};
use crate::{RequestStatus, TICKET, TICKET_MESSAGE};

/// Terms of the requested access. Cannot be changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "PodAccessRequest",
    plural = "podaccessrequests",
    namespaced,
    status = "RequestStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "par",
    category = "oz",
    doc = "Requests a dedicated pod, created from a PodAccessTemplate.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(SPEC_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.templateName", "description":"Access Template"}"#,
    printcolumn = r#"{"name":"Pod", "type":"string", "jsonPath":".status.podName", "description":"Target Pod Name"}"#,
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"Is request ready?"}"#,
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"Phase of the request"}"#,
    printcolumn = r#"{"name":"Requester", "type":"string", "jsonPath":".status.requester", "description":"User who created the request", "priority":1}"#,
    printcolumn = r#"{"name":"Expires", "type":"string", "jsonPath":".status.expiresAt", "description":"Expiry of the access"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the request was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PodAccessRequestSpec {
    /// Name of the PodAccessTemplate, in the namespace of the request.
    #[schemars(length(max = 253))]
    pub template_name: String,

    /// Duration of the access, as one number with one unit, such as 90s, 30m or 2h. If unset or zero,
    /// defaultDuration of the template. A longer duration than maxDuration of the template is shortened to
    /// it.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = POD_REQUEST_DURATION), length(max = 64))]
    pub duration: Option<String>,

    /// Name of the container. If unset, the access is for all containers that the template permits.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub container: Option<String>,

    /// Reason for the access, of at most 1024 characters; the audit record contains it. Required if the
    /// template or an access policy requires a reason, and for emergencies.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// Name of the active request that this one continues. The new request is decided independently, with
    /// another dedicated pod and its own expiry. The expiry of the first pod does not change.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub extends: Option<String>,

    /// Change ticket that requires the access, such as INC-42, of at most 128 characters. Required if the
    /// template or an access policy requires a change ticket.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(TICKET).message(TICKET_MESSAGE))]
    pub ticket: Option<String>,

    /// Declares an emergency: access is granted without approvals if accessConfig.emergency of the template
    /// names the requester, and is reviewed afterwards. Requires a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<bool>,
}

impl Kind for PodAccessRequest {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Request;
    const NAME: &'static str = "podaccessrequest";

    crate::defined!();
}
