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

/// What is asked for. Cannot be changed once created.
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
    doc = "Asks for access to a running pod, on the terms of an ExecAccessTemplate.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(TARGET_POD_IS_IMMUTABLE).message(TARGET_POD_IS_IMMUTABLE_MESSAGE).field_path(".spec.targetPod"),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(SPEC_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.templateName", "description":"Access Template"}"#,
    printcolumn = r#"{"name":"Pod", "type":"string", "jsonPath":".status.podName", "description":"Target Pod Name"}"#,
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"Is request ready?"}"#,
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"How far the request came"}"#,
    printcolumn = r#"{"name":"Requester", "type":"string", "jsonPath":".status.requester", "description":"Who asked", "priority":1}"#,
    printcolumn = r#"{"name":"Expires", "type":"string", "jsonPath":".status.expiresAt", "description":"When access ends"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the request was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ExecAccessRequestSpec {
    /// Name of the ExecAccessTemplate, in the request's own namespace.
    #[schemars(length(max = 253))]
    pub template_name: String,

    /// How long access should last, as a number with a unit for each part: 30m, 1h30m. Zero or
    /// absent means the template's defaultDuration; more than its maxDuration gets that.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(OPTIONAL_DURATION).message(DURATION_MESSAGE))]
    pub duration: Option<String>,

    /// The pod to get into. Absent means any ready pod of the template's workload.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub target_pod: Option<String>,

    /// The container to get into. Absent means any that the template allows.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub container: Option<String>,

    /// Why access is needed. Kept in the audit record.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// Name of the running request that this one continues, on the same pod. It is a request of
    /// its own: decided anew, with an end of its own.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub extends: Option<String>,

    /// The ticket by which access is needed, such as INC-42, where the template or a policy asks for one.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(TICKET).message(TICKET_MESSAGE))]
    pub ticket: Option<String>,

    /// Whether it is an emergency: then nobody has to approve it, if the template's accessConfig.emergency
    /// names whoever asks, and somebody else looks at it afterwards. Needs a reason.
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
