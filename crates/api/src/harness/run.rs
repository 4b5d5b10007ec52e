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
use crate::{TICKET, TICKET_MESSAGE};

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

/// Template, prompt and limits of the run. Cannot be changed.
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
    doc = "One run of an AI agent: a prompt for a template, in a confined pod that terminates.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"Phase of the run"}"#,
    printcolumn = r#"{"name":"Template", "type":"string", "jsonPath":".spec.templateRef.name", "description":"Template of the run"}"#,
    printcolumn = r#"{"name":"Workspace", "type":"string", "jsonPath":".status.workspaceRef", "description":"Workspace of the run"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#,
    printcolumn = r#"{"name":"Credentials", "type":"string", "jsonPath":".status.conditions[?(@.type==\"BrokerCredentialsReady\")].message", "description":"Credentials of the run"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ONE_PROMPT).message(ONE_PROMPT_MESSAGE).field_path(".prompt"),
    validation = Rule::new(OVERRIDES).message(OVERRIDES_MESSAGE).field_path(".interactiveOverrides"),
)]
pub struct HarnessRunSpec {
    /// The template of the run.
    pub template_ref: TemplateRef,

    /// Name of a Workspace of the same namespace. If unset, and if the template requires a workspace, one
    /// that is deleted with the run.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub workspace_ref: Option<String>,

    /// Prompt of the agent, of at most 256 KiB. Exactly one of prompt and promptFrom must be set.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 262144))]
    pub prompt: Option<String>,

    /// Reference to the prompt. Exactly one of prompt and promptFrom must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_from: Option<PromptSource>,

    /// Maximum duration of the run from the start of its Job, such as 45s or 1h30m. The timeout of the
    /// template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub timeout: Option<String>,

    /// Number of retries after a failure, from 0 to 10.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10))]
    pub retries: i32,

    /// Resources of the agent's container. Those of the template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// Model, for the harness. That of the template if unset.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub model: Option<String>,

    /// Additional environment variables of the agent, at most 256. Variables of the harness contract are
    /// invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 256))]
    pub extra_env: Vec<EnvEntry>,

    /// Time in seconds from the end of the run until it is deleted. Never deleted if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315360000))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Mode of the run: Batch for one prompt, Interactive for several. Batch if empty. Interactive is not
    /// served yet: the run fails.
    #[serde(default, skip_serializing_if = "RunMode::is_unset")]
    pub mode: RunMode,

    /// Timeouts that override those of the template. Invalid unless mode is Interactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive_overrides: Option<InteractiveOverrides>,

    /// Reason for the run, of at most 1024 characters; the audit record contains it. Required if an access
    /// policy requires a reason, and for emergencies.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// Change ticket that requires the run, such as INC-42, of at most 128 characters. Required if the
    /// template or an access policy requires a change ticket.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(TICKET).message(TICKET_MESSAGE))]
    pub ticket: Option<String>,

    /// Declares an emergency: the run begins without approvals if emergency of the template names the
    /// requester, and is reviewed afterwards. Requires a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<bool>,
}

impl HarnessRunSpec {
    /// Checks whether the run declares an emergency.
    #[must_use]
    pub fn is_emergency(&self) -> bool {
        self.emergency == Some(true)
    }
}

impl Kind for HarnessRun {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::Run;
    const NAME: &'static str = "harnessrun";

    crate::defined!();
}

/// Reference to the template of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Name of the template.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Kind of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TemplateKind>,
}

/// Kind of the template. If unset, the HarnessTemplate of that name or, if it does not exist, the
/// ClusterHarnessTemplate.
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
    /// A template of the namespace.
    HarnessTemplate,
    /// A template of the cluster.
    ClusterHarnessTemplate,
}

/// Reference to a prompt. Exactly one of configMapKeyRef and secretKeyRef must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_SOURCE).message(ONE_SOURCE_MESSAGE))]
pub struct PromptSource {
    /// Key of a ConfigMap. The author of the run must be allowed to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,

    /// Key of a Secret. The author of the run must be allowed to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
}

/// Reference to a key of a ConfigMap or Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key of the value.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(LITERAL).message(LITERAL_MESSAGE).field_path(".valueFrom"))]
pub struct EnvEntry {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Value of the variable, of at most 32768 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub value: String,

    /// Invalid: the field exists so that the API server rejects it instead of pruning it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "refused")]
    pub value_from: Option<Value>,
}

fn refused(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The mode of a run.
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
    /// The mode Batch.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// One prompt.
    Batch,
    /// Several prompts.
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
