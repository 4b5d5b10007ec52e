//! HarnessTemplate and ClusterHarnessTemplate: the definition of a run, and its requirements.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::template_parts::{
    BaseTemplateRef, InteractiveTerms, Requires, RunDefaults, RuntimeImage, TemplateWorkspace,
};
use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::{ApprovalConfig, EmergencyConfig, TicketConfig};

const IMAGE: &str = "has(self.baseTemplateRef) != (has(self.image) && self.image != '')";
const IMAGE_MESSAGE: &str =
    "image must be set, unless the template inherits (baseTemplateRef): then it is the base's";
const COMMAND: &str = "has(self.baseTemplateRef) != (has(self.command) && self.command.size() > 0)";
const COMMAND_MESSAGE: &str =
    "command must be set, unless the template inherits (baseTemplateRef): then it is the base's";
const ARGS: &str = "!has(self.baseTemplateRef) || !has(self.args) || self.args.size() == 0";
const ARGS_MESSAGE: &str = "args are the base's, and must be absent where baseTemplateRef is set";
const RUNTIME: &str = "!has(self.baseTemplateRef) || !has(self.runtime)";
const RUNTIME_MESSAGE: &str =
    "runtime is the base's, and must be absent where baseTemplateRef is set";
const WORKSPACE: &str = "!has(self.baseTemplateRef) || !has(self.workspace)";
const WORKSPACE_MESSAGE: &str =
    "workspace is the base's, and must be absent where baseTemplateRef is set";
const EMERGENCY: &str = "!has(self.baseTemplateRef) || !has(self.emergency)";
const EMERGENCY_MESSAGE: &str =
    "emergency is the base's, and must be absent where baseTemplateRef is set";
const CLUSTER: &str = "!has(self.spec) || !has(self.spec.baseTemplateRef)";
const CLUSTER_MESSAGE: &str =
    "a cluster template inherits from none: use a HarnessTemplate for that";
const SPEC_IS_GIVEN: &str = "has(self.spec)";
const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";

/// Image, resources and requirements of runs. A template with baseTemplateRef inherits image, command,
/// args, runtime, workspace and emergency, and cannot set them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "paddock.dev",
    version = "v1alpha1",
    kind = "HarnessTemplate",
    plural = "harnesstemplates",
    namespaced,
    status = "HarnessTemplateStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ht",
    annotation("api-approved.kubernetes.io", "unapproved: published by Paddock"),
    doc = "The template of harness runs in its namespace, and their requirements.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Harness", "type":"string", "jsonPath":".spec.harness", "description":"Name of the harness"}"#,
    printcolumn = r#"{"name":"Image", "type":"string", "jsonPath":".spec.image", "description":"Image of the agent"}"#,
    printcolumn = r#"{"name":"Base", "type":"string", "jsonPath":".spec.baseTemplateRef.name", "description":"Cluster template that the template inherits from"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(IMAGE).message(IMAGE_MESSAGE).field_path(".image"),
    validation = Rule::new(COMMAND).message(COMMAND_MESSAGE).field_path(".command"),
    validation = Rule::new(ARGS).message(ARGS_MESSAGE).field_path(".args"),
    validation = Rule::new(RUNTIME).message(RUNTIME_MESSAGE).field_path(".runtime"),
    validation = Rule::new(WORKSPACE).message(WORKSPACE_MESSAGE).field_path(".workspace"),
    validation = Rule::new(EMERGENCY).message(EMERGENCY_MESSAGE).field_path(".emergency"),
)]
pub struct HarnessTemplateSpec {
    /// The cluster template from which this template inherits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_template_ref: Option<BaseTemplateRef>,

    /// Name of the harness, of at most 63 characters. Informational.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub harness: Option<String>,

    /// Image of the agent. Required without baseTemplateRef.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// Command of the agent, at most 256 items. Required without baseTemplateRef.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,

    /// Arguments of the command, at most 256 items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,

    /// Values for runs that do not set them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<RunDefaults>,

    /// Container that converts the agent's output into events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeImage>,

    /// Credentials and hosts that broker policies must grant to the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,

    /// Use of a workspace by runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<TemplateWorkspace>,

    /// Additions to the pod, as a PodTemplateSpec: sidecars, volumes, scheduling. It cannot change the
    /// confinement of a run; a run with an invalid overlay fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub pod_template_overlay: Option<Value>,

    /// Approvals that each run requires before it begins. They are required in addition to those of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalConfig>,

    /// Change ticket that each run must name (spec.ticket). It must satisfy this requirement and that of the
    /// base. Not required if unset. Emergencies never require one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<TicketConfig>,

    /// Users whose runs begin without approvals and change tickets if they declare an emergency
    /// (spec.emergency), and users who review them afterwards. maxDuration limits the timeout of these runs.
    /// No emergencies if unset. With baseTemplateRef, only the base sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<EmergencyConfig>,

    /// Interactive runs: mode and timeouts. One prompt for each run if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<InteractiveTerms>,
}

impl Kind for HarnessTemplate {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::RunTemplate;
    const NAME: &'static str = "harnesstemplate";

    crate::defined!();
}

/// Returns the schema of any object: its fields are checked when a run is created from it.
fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Image, resources and requirements of runs in the whole cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "paddock.dev",
    version = "v1alpha1",
    kind = "ClusterHarnessTemplate",
    plural = "clusterharnesstemplates",
    status = "HarnessTemplateStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "cht",
    annotation("api-approved.kubernetes.io", "unapproved: published by Paddock"),
    doc = "The template of harness runs in any namespace, and their requirements.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(CLUSTER).message(CLUSTER_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Harness", "type":"string", "jsonPath":".spec.harness", "description":"Name of the harness"}"#,
    printcolumn = r#"{"name":"Image", "type":"string", "jsonPath":".spec.image", "description":"Image of the agent"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the template was created"}"#
)]
#[serde(transparent)]
pub struct ClusterHarnessTemplateSpec(
    /// The spec of a HarnessTemplate, without baseTemplateRef.
    pub HarnessTemplateSpec,
);

impl Kind for ClusterHarnessTemplate {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::RunTemplate;
    const NAME: &'static str = "clusterharnesstemplate";

    crate::defined!();
}

/// Observed state of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarnessTemplateStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Conditions. Ready: True if runs can be created from the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
