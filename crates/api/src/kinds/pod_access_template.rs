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

/// What the pods look like, and who may get one, for how long.
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
    doc = "Gives people pods of their own for a limited time, by a PodAccessRequest.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"Is template ready?"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.controllerTargetRef.kind", "description":"Kind of the workload", "priority":1}"#,
    printcolumn = r#"{"name":"Target", "type":"string", "jsonPath":".spec.controllerTargetRef.name", "description":"Name of the workload"}"#,
    printcolumn = r#"{"name":"Max", "type":"string", "jsonPath":".spec.accessConfig.maxDuration", "description":"The longest that access can last"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the template was created"}"#
)]
#[x_kube(
    validation = Rule::new(EXACTLY_ONE_SOURCE)
        .message("exactly one of podSpec and controllerTargetRef must be set")
        .optional_old_self(true)
)]
#[serde(rename_all = "camelCase")]
pub struct PodAccessTemplateSpec {
    /// Who may get access, to do what, for how long, and what they are told.
    pub access_config: AccessConfig,

    /// The workload whose pod template is the model, in the template's own namespace. Either this
    /// or podSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_target_ref: Option<CrossVersionObjectReference>,

    /// How a pod differs from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_target_mutation_config: Option<PodTemplateSpecMutationConfig>,

    /// The pod itself, for one that is not modelled on a workload. Either this or
    /// controllerTargetRef. The fields are those of a pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_spec")]
    pub pod_spec: Option<PodSpec>,

    /// The most ephemeral storage that the pod can have, all containers together. Containers without
    /// a limit get one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_storage: Option<Quantity>,

    /// The most CPU that the pod can have, all containers together. Containers without a limit get
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_cpu: Option<Quantity>,

    /// The most memory that the pod can have, all containers together. Containers without a limit
    /// get one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_memory: Option<Quantity>,

    /// Whom the pod can talk to. Absent means that oz does not restrict it.
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
