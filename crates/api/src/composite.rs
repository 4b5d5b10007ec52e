//! CompositeController as MetaController published it: names, fields, types and enumerations are the same. Fields that
//! oz does not support yet are read too, so that oz can reject them by name.

use crate::kind::{Family, Kind, Role};
use crate::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "metacontroller.k8s.io";
/// The maximum number of children of one parent.
pub const MAX_CHILDREN: usize = 1_000;

/// A controller that is a function: which kind of parent, which kinds of children, and who is asked what
/// children a parent has.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "metacontroller.k8s.io",
    version = "v1alpha1",
    kind = "CompositeController",
    plural = "compositecontrollers",
    shortname = "cc",
    shortname = "cctl",
    annotation(
        "api-approved.kubernetes.io",
        "unapproved: published by MetaController"
    ),
    status = "CompositeControllerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A controller that is a function: an object of the parent kind has the children that the function names.",
    printcolumn = r#"{"name":"Parent", "type":"string", "jsonPath":".spec.parentResource.resource", "description":"The kind of parent"}"#,
    printcolumn = r#"{"name":"Accepted", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Accepted\")].status", "description":"Whether what it declares can be run"}"#,
    printcolumn = r#"{"name":"Permitted", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Permitted\")].status", "description":"Whether its account has the rights that it needs"}"#,
    printcolumn = r#"{"name":"Running", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Running\")].status", "description":"Whether it runs"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerSpec {
    /// The kind of parent.
    pub parent_resource: ParentResource,
    /// The kinds of children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_resources: Vec<ChildResource>,
    /// Seconds between two looks at all parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period_seconds: Option<i32>,
    /// Children are selected by a label with their parent's UID, in place of the parent's spec.selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_selector: Option<bool>,
    /// Who is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// TLS and credentials by host. Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "list_of_anything")]
    pub endpoint_configs: Option<serde_json::Value>,
}

impl Kind for CompositeController {
    const FAMILY: Family = Family::Composites;
    const ROLE: Role = Role::Composite;
    const NAME: &'static str = "compositecontroller";
    const FINALIZER: Option<&'static str> = Some(names::COMPOSITE_FINALIZER);

    crate::defined!(as_derived);
}

/// The kind of parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentResource {
    /// Group and version, such as example.com/v1.
    pub api_version: String,
    /// Plural, such as samples.
    pub resource: String,
    /// Which parents; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Which fields a revision is made of, for rolling updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history: Option<RevisionHistory>,
    /// Whether a change of a parent's status alone leaves the function unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_status_changes: Option<bool>,
}

/// Which fields a revision is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHistory {
    /// Paths, such as spec.template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_paths: Option<Vec<String>>,
}

/// A kind of child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildResource {
    /// Group and version, such as apps/v1.
    pub api_version: String,
    /// Plural, such as deployments.
    pub resource: String,
    /// What is done when a child differs from what the function names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
}

/// What is done when a child differs from what the function names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// How; OnDelete if absent. The rolling ones are not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// What a child must say before the next one is changed, for rolling updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub status_checks: Option<serde_json::Value>,
}

/// How a child that differs is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Method {
    /// It is not, until somebody deletes it.
    #[default]
    OnDelete,
    /// It is deleted, and created anew.
    Recreate,
    /// Its fields are changed.
    InPlace,
    /// As Recreate, one after the other.
    RollingRecreate,
    /// As InPlace, one after the other.
    RollingInPlace,
}

/// Who is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    /// Which children a parent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Hook>,
    /// Which children one still has that is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalize: Option<Hook>,
    /// Which other objects the function wants to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customize: Option<Hook>,
    /// Without effect, as in MetaController.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_update_child: Option<Hook>,
    /// Without effect, as in MetaController.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_update_child: Option<Hook>,
}

/// A function that is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// How objects are named in the request.
    #[serde(default)]
    pub version: HookVersion,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// How objects are named in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookVersion {
    /// By name, under a parent in a namespace.
    #[default]
    #[serde(rename = "v1")]
    V1,
    /// By namespace and name, whatever is in one.
    #[serde(rename = "v2")]
    V2,
}

/// Where a function is, and how it is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Its URL, if it has no service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How long it may take, such as 10s, which is the default; at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The path at its service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Whether fields that are not part of an answer are refused; in v1 they are not, in v2 they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_un_marshall_mode: Option<Mode>,
    /// Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub etag: Option<serde_json::Value>,
    /// Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub ca_bundle: Option<serde_json::Value>,
    /// Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "clientTLS")]
    #[schemars(schema_with = "anything")]
    pub client_tls: Option<serde_json::Value>,
    /// Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub authorization: Option<serde_json::Value>,
    /// Not supported yet: see status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub basic_auth: Option<serde_json::Value>,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its port; 80 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// http, which is the default, or https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Whether fields that are not part of an answer are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are passed over.
    Loose,
    /// They are.
    Strict,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerStatus {
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// As whom it reads and writes, as NAMESPACE/NAME of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Digest of the policy that runs in process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
    /// The first digits of that digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Digest of the last policy that may delete what it does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_digest: Option<String>,
    /// The language of that policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// How many parents there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<i64>,
    /// What is not done, of the first parents: by a dry run, or because a policy that has changed would
    /// delete too much.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub pending: Vec<Difference>,
    /// Accepted, Permitted, Running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is not done for one parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The parent, with its namespace if it has one.
    pub parent: String,
    /// Children that would be created, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub create: Vec<String>,
    /// Children that would be changed, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub change: Vec<String>,
    /// Children that would be deleted, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub delete: Vec<String>,
    /// How many are not named here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn list_of_anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}
