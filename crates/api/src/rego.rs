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
const OF_ITS_AUTHOR: &str = r"!self.matches(r'^\.(metadata|status)(\.|$)')";
const OF_ITS_AUTHOR_MESSAGE: &str =
    "must be a field that the parent's author writes, not of metadata or status";
/// The rule about the maximum length of a name: with its prefix, the name is the name of a finalizer.
const SHORT_NAME: &str = "self.metadata.name.size() <= 48";
const ONE_POLICY: &str = "has(self.inline) != has(self.configMapRef)";
const KINDS_ONCE: &str = "self.all(one, self.exists_one(other, other.apiVersion == one.apiVersion && other.resource == one.resource))";
const AT_LEAST_A_SECOND: &str =
    "!self.matches(r'^[0-9hmsuµμn.+]+$') || duration(self) >= duration('1s')";
const EVALUATION: &str = "!self.matches(r'^[0-9hmsuµμn.+]+$') || (duration(self) >= duration('1ms') && duration(self) <= duration('1s'))";

/// A controller that is a policy: which kind of parent, which kinds of children, and the policy that says
/// what children a parent has.
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
    doc = "A controller that is a policy in Rego: an object of the parent kind has the children that the policy names.",
    validation = Rule::new(SHORT_NAME).message("metadata.name has 48 characters at most"),
    printcolumn = r#"{"name":"Parent", "type":"string", "jsonPath":".spec.parent.resource", "description":"The kind of parent"}"#,
    printcolumn = r#"{"name":"Policy", "type":"string", "jsonPath":".status.policy", "description":"First digits of the policy's digest"}"#,
    printcolumn = r#"{"name":"Parents", "type":"integer", "jsonPath":".status.parents", "description":"How many parents there are"}"#,
    printcolumn = r#"{"name":"Running", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Running\")].status", "description":"Whether it runs"}"#,
    printcolumn = r#"{"name":"Mode", "type":"string", "jsonPath":".spec.mode", "description":"Whether children are written", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RegoControllerSpec {
    /// The kind of parent.
    pub parent: Parent,
    /// The kinds of children, each once.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(validation = Rule::new(KINDS_ONCE).message("names a kind twice"))]
    pub children: Vec<ChildKind>,
    /// The policy.
    pub policy: PolicySource,
    /// Which other objects the policy wants to see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub related: Vec<RelatedKind>,
    /// From when until when a parent has children; always if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How often all parents are looked at, beside when something changes and at the instants that they name.
    #[serde(default = "default_resync")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    #[x_kube(validation = Rule::new(AT_LEAST_A_SECOND).message("must be 1s at least"))]
    pub resync: String,
    /// As whom parents and children are read and written.
    pub run_as: RunAs,
    /// What it may take and do.
    #[serde(default)]
    pub limits: Limits,
    /// Whether children are written.
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

/// A kind of parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// Group and version, such as example.com/v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural, such as samples.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// Which parents; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// A kind of child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildKind {
    /// Group and version, such as apps/v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural, such as deployments.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// What is done when a child differs from what the policy names.
    #[serde(default)]
    pub update: Update,
}

/// What is done when a child differs from what the policy names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Update {
    /// Its fields are changed.
    #[default]
    InPlace,
    /// It is deleted, and created anew.
    Recreate,
    /// Nothing, until somebody deletes it.
    OnDelete,
}

/// Where the policy is, and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_POLICY).message("must have inline or configMapRef, and not both"))]
pub struct PolicySource {
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 524_288))]
    pub inline: Option<String>,
    /// The key of a ConfigMap that holds its text, in a namespace of policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapKey>,
    /// Its document, without `data.`.
    #[serde(default = "default_package")]
    #[schemars(length(max = 253), regex(pattern = PACKAGE))]
    pub package: String,
    /// The language; if absent, v1 is tried, and then v0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// Whether what a built-in function cannot do fails; else it is undefined, as OPA has it.
    #[serde(default)]
    pub strict: bool,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Its namespace: one that is listed as one of policies.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = NAME))]
    pub name: String,
    /// The key.
    #[schemars(length(max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Which Rego a policy is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// As before OPA 1.0.
    V0,
    /// As of OPA 1.0.
    V1,
}

/// Other objects that a policy wants to see. Not supported yet: see status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedKind {
    /// Group and version, such as v1.
    #[schemars(length(max = 317), regex(pattern = API_VERSION))]
    pub api_version: String,
    /// Plural, such as namespaces.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub resource: String,
    /// Which objects; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// In which namespace; in the parent's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: Option<String>,
}

/// From when until when a parent has children: fields of the parent, each an instant in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.from) || self.from != self.until").message("begins and ends with the same field"))]
pub struct Window {
    /// The field with the first instant, such as .spec.validFrom. At once if this or the field is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = PATH))]
    #[x_kube(validation = Rule::new(OF_ITS_AUTHOR).message(OF_ITS_AUTHOR_MESSAGE))]
    pub from: Option<String>,
    /// The field with the first instant at which all children are gone, whatever the policy says, such as
    /// .spec.validUntil. A parent without it gets no children.
    #[schemars(length(max = 256), regex(pattern = PATH))]
    #[x_kube(validation = Rule::new(OF_ITS_AUTHOR).message(OF_ITS_AUTHOR_MESSAGE))]
    pub until: String,
}

/// A service account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAs {
    /// Its namespace.
    #[schemars(length(max = 63), regex(pattern = RESOURCE))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = NAME))]
    pub service_account: String,
}

/// What a RegoController may take and do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// How long one evaluation of the policy may take; from 1ms to 1s.
    #[serde(default = "default_evaluation")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    #[x_kube(validation = Rule::new(EVALUATION).message("must be from 1ms to 1s"))]
    pub evaluation: String,
    /// How many children one parent may have. An answer with more counts for nothing.
    #[serde(default = "default_children")]
    #[schemars(range(min = 1, max = 1_000))]
    pub children: u32,
    /// How many children a policy that has changed may delete, of all parents. One that would delete more
    /// waits until the annotation oz.wizardofoz.co/accept-deletions names its digest.
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

/// Whether children are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// They are.
    #[default]
    Enforce,
    /// They are not: status says what would be done. What was made before comes to its end.
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

fn default_deletions() -> u32 {
    10
}

fn default_package() -> String {
    "controller".to_owned()
}
