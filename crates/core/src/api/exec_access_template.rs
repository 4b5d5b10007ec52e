//! ExecAccessTemplate: lets people into the running pods of a workload.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{AccessConfig, CrossVersionObjectReference, TemplateStatus};

/// Which workload, and who may get into its pods, for how long.
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
    doc = "Lets people get into running pods of a workload for a limited time, by an ExecAccessRequest.",
    printcolumn(
        name = "Ready",
        type_ = "boolean",
        description = "Is template ready?",
        json_path = ".status.ready"
    ),
    printcolumn(
        name = "Kind",
        type_ = "string",
        description = "Kind of the workload",
        json_path = ".spec.controllerTargetRef.kind",
        priority = 1
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        description = "Name of the workload",
        json_path = ".spec.controllerTargetRef.name",
        priority = 0
    ),
    printcolumn(
        name = "Max",
        type_ = "string",
        description = "The longest that access can last",
        json_path = ".spec.accessConfig.maxDuration",
        priority = 0
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "Time since the template was created",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ExecAccessTemplateSpec {
    /// Who may get access, to do what, for how long, and what they are told.
    pub access_config: AccessConfig,

    /// The workload whose pods can be entered, in the template's own namespace.
    pub controller_target_ref: CrossVersionObjectReference,
}
