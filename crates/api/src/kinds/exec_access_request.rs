//! ExecAccessRequest: one user requests access to one running pod.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{
    DURATION_MESSAGE, OPTIONAL_DURATION, SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE,
    SPEC_IS_IMMUTABLE_MESSAGE,
};
use crate::{RequestStatus, TICKET, TICKET_MESSAGE};

/// Terms of the requested access. Cannot be changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "ExecAccessRequest",
    plural = "execaccessrequests",
    namespaced,
    status = "RequestStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ear",
    category = "oz",
    doc = "Requests access to a running pod, by an ExecAccessTemplate.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(TARGET_POD_IS_IMMUTABLE).message(TARGET_POD_IS_IMMUTABLE_MESSAGE).field_path(".spec.targetPod"),
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
pub struct ExecAccessRequestSpec {
    /// Name of the ExecAccessTemplate, in the namespace of the request.
    #[schemars(length(max = 253))]
    pub template_name: String,

    /// Duration of the access, in units from h to ns, such as 30m or 1h30m. If unset or zero,
    /// defaultDuration of the template. A longer duration than maxDuration of the template is shortened to
    /// it.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(OPTIONAL_DURATION).message(DURATION_MESSAGE))]
    pub duration: Option<String>,

    /// Name of the pod. If unset, oz chooses a ready pod of the template's workload.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub target_pod: Option<String>,

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

    /// Name of the active request that this one continues on the same pod. The new request is decided
    /// independently and has its own expiry.
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

impl Kind for ExecAccessRequest {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Request;
    const NAME: &'static str = "execaccessrequest";

    crate::defined!();
}

/// The rule about `spec.targetPod`. The whole spec is immutable; the original has its own message for this field.
const TARGET_POD_IS_IMMUTABLE: &str = "!has(self.spec) || !has(oldSelf.spec) || \
    (has(self.spec.targetPod) == has(oldSelf.spec.targetPod) \
    && (!has(self.spec.targetPod) || self.spec.targetPod == oldSelf.spec.targetPod))";

/// The message for a change of `spec.targetPod`.
pub const TARGET_POD_IS_IMMUTABLE_MESSAGE: &str =
    "error - Spec.TargetPod is an immutable field, create a new PodAccessRequest instead";
