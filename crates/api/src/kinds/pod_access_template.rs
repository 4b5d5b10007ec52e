//! PodAccessTemplate: grants users dedicated pods, made from a workload or from a given spec.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, pod_spec, quantity};
use crate::{
    AccessConfig, CrossVersionObjectReference, Network, PodTemplateSpecMutationConfig,
    TemplateStatus,
};

/// The dedicated pods, the users who may request one, and the terms.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "PodAccessTemplate",
    plural = "podaccesstemplates",
    namespaced,
    status = "TemplateStatus",
    derive = "PartialEq",
    shortname = "pat",
    category = "oz",
    doc = "Grants users dedicated pods for a limited time, by a PodAccessRequest.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"True if the template can be used"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.controllerTargetRef.kind", "description":"Kind of the workload", "priority":1}"#,
    printcolumn = r#"{"name":"Target", "type":"string", "jsonPath":".spec.controllerTargetRef.name", "description":"Name of the workload"}"#,
    printcolumn = r#"{"name":"Max", "type":"string", "jsonPath":".spec.accessConfig.maxDuration", "description":"Maximum duration of access"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the template was created"}"#
)]
#[x_kube(
    validation = Rule::new(EXACTLY_ONE_SOURCE)
        .message("exactly one of podSpec and controllerTargetRef must be set")
        .optional_old_self(true)
)]
#[serde(rename_all = "camelCase")]
pub struct PodAccessTemplateSpec {
    /// Users who may request access, permitted operations, duration and requirements.
    pub access_config: AccessConfig,

    /// The workload whose pod template is the source of the dedicated pods, in the namespace of the
    /// template. Exactly one of controllerTargetRef and podSpec must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_target_ref: Option<CrossVersionObjectReference>,

    /// Differences of the dedicated pods from the pod template of the workload. If unset, only the changes
    /// that oz always makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_target_mutation_config: Option<PodTemplateSpecMutationConfig>,

    /// Complete spec of the dedicated pods, with the fields of a Kubernetes PodSpec. Exactly one of
    /// controllerTargetRef and podSpec must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_spec")]
    pub pod_spec: Option<PodSpec>,

    /// Maximum ephemeral storage of a pod, as the sum that Kubernetes computes for the whole pod.
    /// Containers without a limit get one; a larger pod is denied. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_storage: Option<Quantity>,

    /// Maximum CPU of a pod, as the sum that Kubernetes computes for the whole pod. Containers without a
    /// limit get one; a larger pod is denied. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_cpu: Option<Quantity>,

    /// Maximum memory of a pod, as the sum that Kubernetes computes for the whole pod. Containers without a
    /// limit get one; a larger pod is denied. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_memory: Option<Quantity>,

    /// Permitted connections of the pods. If unset, oz creates no NetworkPolicy for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

impl Kind for PodAccessTemplate {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Template;
    const NAME: &'static str = "podaccesstemplate";

    crate::defined!();
}

/// Stored objects that the original accepted with both or neither stay editable; nothing new comes
/// in that way, and none of them can change from one wrong form to the other.
const EXACTLY_ONE_SOURCE: &str = "has(self.podSpec) != has(self.controllerTargetRef) || \
    (oldSelf.hasValue() \
    && has(oldSelf.value().podSpec) == has(self.podSpec) \
    && has(oldSelf.value().controllerTargetRef) == has(self.controllerTargetRef))";
