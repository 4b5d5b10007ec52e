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

/// The kind of parent, the kinds of children, and the functions that return the children of a parent.
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
    doc = "A controller that is a function: the function returns the children of each object of \
        the parent kind.",
    printcolumn = r#"{"name":"Parent", "type":"string", "jsonPath":".spec.parentResource.resource", "description":"The kind of parent"}"#,
    printcolumn = r#"{"name":"Accepted", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Accepted\")].status", "description":"Whether the declaration can be run"}"#,
    printcolumn = r#"{"name":"Permitted", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Permitted\")].status", "description":"Whether its service account has the required rights"}"#,
    printcolumn = r#"{"name":"Running", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Running\")].status", "description":"Whether the controller runs"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerSpec {
    /// The kind of parent.
    pub parent_resource: ParentResource,
    /// The kinds of children, each at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_resources: Vec<ChildResource>,
    /// Interval in seconds at which all parents are reconciled, in addition to changes. No interval if
    /// unset, zero or negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period_seconds: Option<i32>,
    /// Selects the children of a parent by a label with the parent's UID, instead of the parent's
    /// spec.selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_selector: Option<bool>,
    /// The functions that the operator calls. sync is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// TLS settings and credentials by host. Not supported: a controller with this field is not Accepted.
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

/// The kind of parent of a CompositeController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentResource {
    /// API group and version, such as example.com/v1.
    pub api_version: String,
    /// Plural name of the kind, such as samples.
    pub resource: String,
    /// Selector of parents by label. All parents if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Fields that define a revision, for the rolling update methods. Without effect, since these methods
    /// are not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history: Option<RevisionHistory>,
    /// Excludes changes of a parent's status from the changes that cause a call of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_status_changes: Option<bool>,
}

/// Fields that define a revision of a parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHistory {
    /// Paths of the fields, such as spec.template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_paths: Option<Vec<String>>,
}

/// A kind of child of a CompositeController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildResource {
    /// API group and version, such as apps/v1.
    pub api_version: String,
    /// Plural name of the kind, such as deployments.
    pub resource: String,
    /// Update of a child that differs from the child that the function returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
}

/// Update of a child that differs from the child that the function returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Update method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Conditions that a child must meet before the next one is updated, for the rolling update methods.
    /// Without effect, since these methods are not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub status_checks: Option<serde_json::Value>,
}

/// Update method. OnDelete: the child is not changed until it is deleted. Recreate: the child is deleted
/// and created again. InPlace: its fields are changed. RollingRecreate and RollingInPlace are not
/// supported: a controller with one of them is not Accepted. OnDelete if unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Method {
    /// The child is not changed until it is deleted.
    #[default]
    OnDelete,
    /// The child is deleted and created again.
    Recreate,
    /// The fields of the child are changed.
    InPlace,
    /// Recreate, one child after another.
    RollingRecreate,
    /// InPlace, one child after another.
    RollingInPlace,
}

/// The functions of a CompositeController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    /// Function that returns the children and the status of a parent. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Hook>,
    /// Function that returns the remaining children of a parent that is being deleted. If unset, the
    /// children are deleted with the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalize: Option<Hook>,
    /// Function that returns rules for related objects, which sync and finalize get with the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customize: Option<Hook>,
    /// Accepted without effect, as in MetaController.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_update_child: Option<Hook>,
    /// Accepted without effect, as in MetaController.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_update_child: Option<Hook>,
}

/// A function that the operator calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// Keys of objects in the request. v1: by name, if the parent has a namespace. v2: by namespace and
    /// name.
    #[serde(default)]
    pub version: HookVersion,
    /// Address of the function, and options of the call. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// The keys of objects in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookVersion {
    /// Name, under a parent in a namespace.
    #[default]
    #[serde(rename = "v1")]
    V1,
    /// Namespace and name.
    #[serde(rename = "v2")]
    V2,
}

/// Address of a function, and options of the call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// URL of the function, with http or https. Either url or service is required; url has precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Timeout of a call, such as 10s, which is the default. Longer values than 60s count as 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Path of the function at its service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Service of the function, if url is unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Treatment of unknown fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_un_marshall_mode: Option<Mode>,
    /// Not supported: a controller with this field is not Accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub etag: Option<serde_json::Value>,
    /// Not supported: a controller with this field is not Accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub ca_bundle: Option<serde_json::Value>,
    /// Not supported: a controller with this field is not Accepted.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "clientTLS")]
    #[schemars(schema_with = "anything")]
    pub client_tls: Option<serde_json::Value>,
    /// Not supported: a controller with this field is not Accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub authorization: Option<serde_json::Value>,
    /// Not supported: a controller with this field is not Accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub basic_auth: Option<serde_json::Value>,
}

/// Reference to a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Port of the Service. 80 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Protocol: http or https. http if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Treatment of unknown fields in a response. loose: they are ignored. strict: the response is rejected.
/// loose for version v1 and strict for v2 if unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are ignored.
    Loose,
    /// The response is rejected.
    Strict,
}

/// Observed state of a CompositeController or RegoController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Service account that reads and writes parents and children, as NAMESPACE/NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Digest of the Rego policy that the operator evaluates. Unset for functions behind HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
    /// Version of oz that last accepted the policy with policyDigest. Unset for functions behind HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// First version of oz that refused the policy with policyDigest, which policyVersion accepted. Unset while the
    /// policy is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_refused_since: Option<String>,
    /// First digits of policyDigest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Digest of the last Rego policy that may delete children which it does not return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_digest: Option<String>,
    /// Language of the Rego policy: v0 or v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Number of parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<i64>,
    /// Changes that are not applied, of the first 20 parents: because of mode DryRun, or because a changed
    /// Rego policy would delete more children than limits.deletions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub pending: Vec<Difference>,
    /// Conditions: Accepted, Permitted, Running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Changes that are not applied for one parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Name of the parent, with its namespace if it has one.
    pub parent: String,
    /// Children that would be created, the first 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub create: Vec<String>,
    /// Children that would be changed, the first 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub change: Vec<String>,
    /// Children that would be deleted, the first 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub delete: Vec<String>,
    /// Number of further children that are not listed.
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
