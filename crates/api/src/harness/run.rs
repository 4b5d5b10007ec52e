//! HarnessRun: one prompt for one agent, in a pod that ends.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::overrides::InteractiveOverrides;
use super::run_status::HarnessRunStatus;
use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{DURATION, DURATION_MESSAGE, SPEC_IS_IMMUTABLE, resources};

const SPEC_IS_GIVEN: &str = "has(self.spec)";
const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";
const IMMUTABLE_MESSAGE: &str = "spec is immutable: submit a new run instead";
const ONE_PROMPT: &str = "(has(self.prompt) && self.prompt != '') != has(self.promptFrom)";
const ONE_PROMPT_MESSAGE: &str = "exactly one of prompt and promptFrom must be set";
const ONE_SOURCE: &str = "has(self.configMapKeyRef) != has(self.secretKeyRef)";
const ONE_SOURCE_MESSAGE: &str = "exactly one of configMapKeyRef and secretKeyRef must be set";
const OVERRIDES: &str =
    "!has(self.interactiveOverrides) || (has(self.mode) && self.mode == 'Interactive')";
const OVERRIDES_MESSAGE: &str = "interactiveOverrides need mode Interactive";
const LITERAL: &str = "!has(self.valueFrom)";
const LITERAL_MESSAGE: &str =
    "valueFrom is not allowed: give a value, or let a BrokerPolicy grant a credential";

/// What is to be run. Cannot be changed once created.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "paddock.dev",
    version = "v1alpha1",
    kind = "HarnessRun",
    plural = "harnessruns",
    namespaced,
    status = "HarnessRunStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "hr",
    annotation("api-approved.kubernetes.io", "unapproved: published by Paddock"),
    doc = "One run of an AI agent: a prompt for a template, in a pod that is confined and ends.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"How far it came"}"#,
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.templateRef.name", "description":"By which template it is made"}"#,
    printcolumn = r#"{"name":"Workspace", "type":"string", "jsonPath":".status.workspaceRef", "description":"The workspace that it works on"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#,
    printcolumn = r#"{"name":"Credentials", "type":"string", "jsonPath":".status.conditions[?(@.type==\"BrokerCredentialsReady\")].message", "description":"What it has credentials for"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ONE_PROMPT).message(ONE_PROMPT_MESSAGE).field_path(".prompt"),
    validation = Rule::new(OVERRIDES).message(OVERRIDES_MESSAGE).field_path(".interactiveOverrides"),
)]
pub struct HarnessRunSpec {
    /// The template.
    pub template_ref: TemplateRef,

    /// Name of a Workspace of the same namespace. Absent means one that ends with the run.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub workspace_ref: Option<String>,

    /// The prompt. Either this or promptFrom.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 262144))]
    pub prompt: Option<String>,

    /// Where the prompt is. Either this or prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_from: Option<PromptSource>,

    /// How long it may last, such as 45s or 1h30m. Absent means as long as the template says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// How often it is tried again after it failed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10))]
    pub retries: i32,

    /// Resources of the agent, in place of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// The model, in place of the template's.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub model: Option<String>,

    /// Environment variables of the agent. Those of the harness contract cannot be set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 256))]
    pub extra_env: Vec<EnvEntry>,

    /// How many seconds after its end the run is removed. Absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315360000))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Batch, or Interactive for a run that takes more than one prompt. Empty means Batch.
    #[serde(default, skip_serializing_if = "RunMode::is_unset")]
    pub mode: RunMode,

    /// Bounds of an interactive run that differ from its template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive_overrides: Option<InteractiveOverrides>,

    /// Why it is run. Kept in the audit record.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

impl Kind for HarnessRun {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::Run;
    const NAME: &'static str = "harnessrun";

    crate::defined!();
}

/// The template of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its kind. Absent means the namespace's own, and the cluster's if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TemplateKind>,
}

/// Which kind of template.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum TemplateKind {
    /// One of the namespace.
    HarnessTemplate,
    /// One of the cluster.
    ClusterHarnessTemplate,
}

/// Where a prompt is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_SOURCE).message(ONE_SOURCE_MESSAGE))]
pub struct PromptSource {
    /// In a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,

    /// In a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
}

/// A key of a ConfigMap or Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(LITERAL).message(LITERAL_MESSAGE).field_path(".valueFrom"))]
pub struct EnvEntry {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub value: String,

    /// Not allowed: here so that it is refused, and not dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "refused")]
    pub value_from: Option<Value>,
}

fn refused(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// How a run takes prompts.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
)]
pub enum RunMode {
    /// Batch.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// One only.
    Batch,
    /// Any number, while it lasts.
    Interactive,
}

impl RunMode {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_unset(&self) -> bool {
        *self == Self::Unset
    }

    /// Returns the name of the mode, as labels and environments contain it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unset | Self::Batch => "Batch",
            Self::Interactive => "Interactive",
        }
    }
}
