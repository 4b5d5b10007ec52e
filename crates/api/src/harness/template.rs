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
const CLUSTER: &str = "!has(self.spec) || !has(self.spec.baseTemplateRef)";
const CLUSTER_MESSAGE: &str =
    "a cluster template inherits from none: use a HarnessTemplate for that";
const SPEC_IS_GIVEN: &str = "has(self.spec)";
const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";

/// How runs are made. With baseTemplateRef, image, command, args, runtime and workspace are the base's.
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
    doc = "How harness runs of this namespace are made, and what they need.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Harness", "type":"string", "jsonPath":".spec.harness", "description":"Which harness it is"}"#,
    printcolumn = r#"{"name":"Image", "type":"string", "jsonPath":".spec.image", "description":"Image of the agent"}"#,
    printcolumn = r#"{"name":"Base", "type":"string", "jsonPath":".spec.baseTemplateRef.name", "description":"The cluster template that it inherits from"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(IMAGE).message(IMAGE_MESSAGE).field_path(".image"),
    validation = Rule::new(COMMAND).message(COMMAND_MESSAGE).field_path(".command"),
    validation = Rule::new(ARGS).message(ARGS_MESSAGE).field_path(".args"),
    validation = Rule::new(RUNTIME).message(RUNTIME_MESSAGE).field_path(".runtime"),
    validation = Rule::new(WORKSPACE).message(WORKSPACE_MESSAGE).field_path(".workspace"),
)]
pub struct HarnessTemplateSpec {
    /// The cluster template that it inherits from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_template_ref: Option<BaseTemplateRef>,

    /// Which harness it is. A label, nothing more.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 63))]
    pub harness: Option<String>,

    /// Image of the agent.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// Command of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,

    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,

    /// What a run gets unless it says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<RunDefaults>,

    /// The container beside the agent that reads its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeImage>,

    /// What a run needs that only a BrokerPolicy can grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,

    /// How runs use a workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<TemplateWorkspace>,

    /// What the pod has besides, as a PodTemplateSpec: sidecars, volumes, where it may run. It cannot change
    /// what confines a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub pod_template_overlay: Option<Value>,

    /// Whether and how runs take more than one prompt.
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

/// How runs of the whole cluster are made.
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
    doc = "How harness runs of any namespace are made, and what they need.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(CLUSTER).message(CLUSTER_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Harness", "type":"string", "jsonPath":".spec.harness", "description":"Which harness it is"}"#,
    printcolumn = r#"{"name":"Image", "type":"string", "jsonPath":".spec.image", "description":"Image of the agent"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(transparent)]
pub struct ClusterHarnessTemplateSpec(
    /// As that of a HarnessTemplate, without baseTemplateRef.
    pub HarnessTemplateSpec,
);

impl Kind for ClusterHarnessTemplate {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::RunTemplate;
    const NAME: &'static str = "clusterharnesstemplate";

    crate::defined!();
}

/// What became of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarnessTemplateStatus {
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready: whether runs can be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
