//! PodAccessTemplate: gives people pods of their own, made from a workload or from a given spec.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::api::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, pod_spec, quantity};
use crate::api::{
    AccessConfig, CrossVersionObjectReference, Network, PodTemplateSpecMutationConfig,
    TemplateStatus,
};

use super::{AccessTemplate, Kind, Right, Role, defined};
use crate::encode;
use crate::validate::{self, AccessPod, ValidatedTemplate, Violation};

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

/// Stored objects that the original accepted with both or neither stay editable; nothing new comes
/// in that way, and none of them can change from one wrong form to the other.
const EXACTLY_ONE_SOURCE: &str = "has(self.podSpec) != has(self.controllerTargetRef) || \
    (oldSelf.hasValue() \
    && has(oldSelf.value().podSpec) == has(self.podSpec) \
    && has(oldSelf.value().controllerTargetRef) == has(self.controllerTargetRef))";

impl Kind for PodAccessTemplate {
    const ROLE: Role = Role::Template;
    const NAME: &'static str = "podaccesstemplate";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.check().err().unwrap_or_default()
    }
}

impl AccessTemplate for PodAccessTemplate {
    type Target = AccessPod;
    const PURPOSE: &'static str = "pod";
    const NOTES_AUTHOR: bool = true;

    fn config(&self) -> &AccessConfig {
        &self.spec.access_config
    }

    fn workload(&self) -> Option<&CrossVersionObjectReference> {
        self.spec.controller_target_ref.as_ref()
    }

    fn check(&self) -> Result<ValidatedTemplate<AccessPod>, Vec<Violation>> {
        validate::pod_access_template(self)
    }

    fn status(&self) -> Option<&TemplateStatus> {
        self.status.as_ref()
    }

    /// A pod first, whose service account and Secrets may be any of the namespace: whoever may
    /// create pods may do that. Then what is done with the pod.
    fn hands_out(&self) -> Vec<Right> {
        let pods = Right {
            verb: "create",
            resource: "pods",
            subresource: None,
        };
        std::iter::once(pods)
            .chain(Right::on_pods(self.config()))
            .collect()
    }
}
