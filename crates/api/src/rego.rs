//! RegoController: a controller that is a policy in Rego, which the operator runs. Its schema rejects invalid content,
//! and `oz_composites` rejects invalid content that a schema cannot detect.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::composite::CompositeControllerStatus;
use crate::kind::{Family, Kind, Role};
use crate::names;
use crate::schema::{DURATION, DURATION_MESSAGE};

/// Group and version as a manifest has them.
const API_VERSION: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$";
/// A plural, without a subresource.
const RESOURCE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A name, in the form of most kinds.
const NAME: &str = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
/// The path of a Rego document, without `data.`.
const PACKAGE: &str = r"^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)*$";
/// A field of a parent.
const PATH: &str = r"^(\.[a-zA-Z_][a-zA-Z0-9_-]*)+$";
/// The rule that neither the API server nor a function writes the field.
const OF_ITS_AUTHOR: &str = r"!self.matches(r'^\.(metadata|status)(\.|$)') || self.matches(r'^\.metadata\.annotations\.[^.]+$')";
const OF_ITS_AUTHOR_MESSAGE: &str = "must be a field that the parent's author writes: an annotation, or a field outside of metadata \
     and status";
/// The rule that a RegoController has a policy and kinds of children, or only deletes its parents.
const A_FUNCTION_OR_AN_END: &str = "has(self.spec.policy) || (has(self.spec.window) && has(self.spec.window.then) && self.spec.window.then == 'Delete')";
const A_FUNCTION_OR_AN_END_MESSAGE: &str =
    "spec.policy is missing: only a controller with window.then: Delete works without a policy";
const CHILDREN_OF_A_POLICY: &str = "has(self.spec.policy) == has(self.spec.children)";
const CHILDREN_OF_A_POLICY_MESSAGE: &str =
    "must have both spec.policy and spec.children, or neither";
/// The rule about the maximum length of a name: with its prefix, the name is the name of a finalizer.
const SHORT_NAME: &str = "self.metadata.name.size() <= 48";
const ONE_POLICY: &str = "has(self.inline) != has(self.configMapRef)";
const KINDS_ONCE: &str = "self.all(one, self.exists_one(other, other.apiVersion == one.apiVersion && other.resource == one.resource))";
const AT_LEAST_A_SECOND: &str =
    "!self.matches(r'^[0-9hmsuµμn.+]+$') || duration(self) >= duration('1s')";
const EVALUATION: &str = "!self.matches(r'^[0-9hmsuµμn.+]+$') || (duration(self) >= duration('1ms') && duration(self) <= duration('1s'))";

/// The kind of parent, the kinds of children, and the Rego policy that returns the children of a parent.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "RegoController",
    plural = "regocontrollers",
    shortname = "rego",
    category = "oz",
    status = "CompositeControllerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A controller that is a Rego policy: the policy returns the children of each object of \
        the parent kind.",
    validation = Rule::new(SHORT_NAME).message("metadata.name has 48 characters at most"),
    validation = Rule::new(A_FUNCTION_OR_AN_END).message(A_FUNCTION_OR_AN_END_MESSAGE),
    validation = Rule::new(CHILDREN_OF_A_POLICY).message(CHILDREN_OF_A_POLICY_MESSAGE),
    printcolumn = r#"{"name":"Parent", "type":"string", "jsonPath":".spec.parent.resource", "description":"The kind of parent"}"#,
    printcolumn = r#"{"name":"Policy", "type":"string", "jsonPath":".status.policy", "description":"First digits of the policy's digest"}"#,
    printcolumn = r#"{"name":"Parents", "type":"integer", "jsonPath":".status.parents", "description":"Number of parents"}"#,
    printcolumn = r#"{"name":"Running", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Running\")].status", "description":"Whether the controller runs"}"#,
    printcolumn = r#"{"name":"Mode", "type":"string", "jsonPath":".spec.mode", "description":"Whether children are written", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RegoControllerSpec {
    /// The kind of parent.
    pub parent: Parent,
    /// The kinds of children, from 1 to 16, each once. Required with policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(validation = Rule::new(KINDS_ONCE).message("names a kind twice"))]
    pub children: Vec<ChildKind>,
    /// The Rego policy. Required unless window.then is Delete: without a policy, the controller only
    /// deletes its parents at the end of their window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySource>,
    /// Related objects that the Rego policy gets in addition to a parent and its children, at most 16
    /// rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub related: Vec<RelatedKind>,
    /// Window in which a parent has children. Always if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Interval at which all parents are reconciled, in addition to changes and to the instants that they
    /// contain; at least 1s.
    #[serde(default = "default_resync")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    #[x_kube(validation = Rule::new(AT_LEAST_A_SECOND).message("must be 1s at least"))]
    pub resync: String,
    /// Service account that reads and writes parents and children. The author of the controller must be
    /// allowed to impersonate it.
    pub run_as: RunAs,
    /// Limits of the Rego policy and its effects.
    #[serde(default)]
    pub limits: Limits,
    /// Effect of the Rego policy. Enforce: children are created, changed and deleted. DryRun:
    /// status.pending reports the changes, and no child is written; children that exist already still
    /// expire at the end of their window.
    #[serde(default)]
    pub mode: Enforcement,
}

impl Kind for RegoController {
    const FAMILY: Family = Family::Composites;
    const ROLE: Role = Role::Composite;
    const NAME: &'static str = "regocontroller";
    const FINALIZER: Option<&'static str> = Some(names::COMPOSITE_FINALIZER);

    crate::defined!(as_derived);
}

/// The kind of parent of a RegoController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// API group and version, such as example.com/v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural name of the kind, such as samples.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// Selector of parents by label. All parents if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// A kind of child of a RegoController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildKind {
    /// API group and version, such as apps/v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural name of the kind, such as deployments.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// Update of a child that differs from the returned child. InPlace: its fields are changed. Recreate:
    /// the child is deleted and created again. OnDelete: the child is not changed until it is deleted.
    #[serde(default)]
    pub update: Update,
}

/// The update of a child that differs from the returned child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Update {
    /// The fields of the child are changed.
    #[default]
    InPlace,
    /// The child is deleted and created again.
    Recreate,
    /// The child is not changed until it is deleted.
    OnDelete,
}

/// Source and language of a Rego policy. Exactly one of inline and configMapRef must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_POLICY).message("must have inline or configMapRef, and not both"))]
pub struct PolicySource {
    /// Text of the Rego policy, of at most 512 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 524_288))]
    pub inline: Option<String>,
    /// Key of a ConfigMap with the text of the Rego policy, in a namespace of composites.policyNamespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapKey>,
    /// Path of the document with the result, without `data.`.
    #[serde(default = "default_package")]
    #[schemars(length(max = 253), regex(pattern = PACKAGE))]
    pub package: String,
    /// Language of the Rego policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// Makes an error of a built-in function an error of the evaluation. By default its result is
    /// undefined, as in OPA.
    #[serde(default)]
    pub strict: bool,
}

/// Reference to a key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Namespace of the ConfigMap, which composites.policyNamespaces must list.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: String,
    /// Name of the ConfigMap.
    #[schemars(length(max = 253), regex(pattern = NAME))]
    pub name: String,
    /// Key of the text.
    #[schemars(length(max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Language of the Rego policy. v0: before OPA 1.0. v1: since OPA 1.0. If unset, v1 is tried first, then
/// v0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Rego before OPA 1.0.
    V0,
    /// Rego since OPA 1.0.
    V1,
}

/// A rule that selects related objects for a Rego policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedKind {
    /// API group and version, such as v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural name of the kind, such as namespaces.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// Selector of objects by label. All objects of the kind if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Namespace of the objects. The namespace of the parent if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: Option<String>,
}

/// Window in which a parent has children: fields of the parent with instants in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.from) || self.from != self.until").message("begins and ends with the same field"))]
pub struct Window {
    /// Path of the field with the beginning of the window, such as .spec.validFrom or
    /// .metadata.annotations.from. The window begins at once if this or the field is unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = PATH))]
    #[x_kube(validation = Rule::new(OF_ITS_AUTHOR).message(OF_ITS_AUTHOR_MESSAGE))]
    pub from: Option<String>,
    /// Path of the field with the end of the window, such as .spec.validUntil: from that instant on, the
    /// parent has no children, regardless of the Rego policy. A parent without the field has none.
    #[schemars(length(max = 256), regex(pattern = PATH))]
    #[x_kube(validation = Rule::new(OF_ITS_AUTHOR).message(OF_ITS_AUTHOR_MESSAGE))]
    pub until: String,
    /// Effect of the end of the window on the parent. Keep: it stays, without children. Delete: it is
    /// deleted at that instant, after its children. Each author of a parent of a privileged kind must be
    /// allowed to delete it.
    #[serde(default)]
    pub then: Then,
}

/// The effect of the end of a window on the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Then {
    /// The parent stays, without children.
    #[default]
    Keep,
    /// The parent is deleted.
    Delete,
}

/// Reference to a service account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAs {
    /// Namespace of the service account.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: String,
    /// Name of the service account.
    #[schemars(length(max = 253), regex(pattern = NAME))]
    pub service_account: String,
}

/// Limits of a RegoController.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Timeout of one evaluation of the Rego policy, from 1ms to 1s.
    #[serde(default = "default_evaluation")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    #[x_kube(validation = Rule::new(EVALUATION).message("must be from 1ms to 1s"))]
    pub evaluation: String,
    /// Maximum number of children of a parent, from 1 to 1000. A result with more is rejected.
    #[serde(default = "default_children")]
    #[schemars(range(min = 1, max = 1_000))]
    pub children: u32,
    /// Maximum number of children, of all parents, that a changed Rego policy may delete. A Rego policy
    /// that would delete more waits until the annotation oz.wizardofoz.co/accept-deletions contains its
    /// digest.
    #[serde(default = "default_deletions")]
    #[schemars(range(min = 0, max = 100_000))]
    pub deletions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            evaluation: default_evaluation(),
            children: default_children(),
            deletions: default_deletions(),
        }
    }
}

/// The effect of a Rego policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// Children are created, changed and deleted.
    #[default]
    Enforce,
    /// Children are not written; the status reports the changes.
    DryRun,
}

fn default_resync() -> String {
    "5m".to_owned()
}

fn default_evaluation() -> String {
    "100ms".to_owned()
}

fn default_children() -> u32 {
    50
}

/// The maximum number of children that a changed Rego policy may delete, if a composite sets none.
pub const DEFAULT_DELETIONS: u32 = 10;

fn default_deletions() -> u32 {
    DEFAULT_DELETIONS
}

fn default_package() -> String {
    "controller".to_owned()
}
