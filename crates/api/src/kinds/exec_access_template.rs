//! ExecAccessTemplate: grants users access to the running pods of a workload.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE};
use crate::{AccessConfig, CrossVersionObjectReference, TemplateStatus};

/// The workload, the users who may request access to its pods, and the terms.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "ExecAccessTemplate",
    plural = "execaccesstemplates",
    namespaced,
    status = "TemplateStatus",
    derive = "PartialEq",
    shortname = "eat",
    category = "oz",
    doc = "Grants users access to running pods of a workload for a limited time, by an \
        ExecAccessRequest.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"True if the template can be used"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.controllerTargetRef.kind", "description":"Kind of the workload", "priority":1}"#,
    printcolumn = r#"{"name":"Target", "type":"string", "jsonPath":".spec.controllerTargetRef.name", "description":"Name of the workload"}"#,
    printcolumn = r#"{"name":"Max", "type":"string", "jsonPath":".spec.accessConfig.maxDuration", "description":"Maximum duration of access"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the template was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ExecAccessTemplateSpec {
    /// Users who may request access, permitted operations, duration and requirements.
    pub access_config: AccessConfig,

    /// The workload with the pods, in the namespace of the template.
    pub controller_target_ref: CrossVersionObjectReference,
}

impl Kind for ExecAccessTemplate {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Template;
    const NAME: &'static str = "execaccesstemplate";

    crate::defined!();
}
