//! The grants of a broker policy.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_status::RunPhase;

/// That what is dangerous was accepted.
pub(super) const ACCEPTED: &str = "self.accepted";
/// Said by [`ACCEPTED`].
pub(super) const ACCEPTED_MESSAGE: &str = "accepted must be true: leave the field out otherwise";
/// The rule that a reason has enough characters, without the spaces around it.
pub(super) const REASON: &str = "self.reason.trim().size() >= 20";
/// The message of [`REASON`].
pub(super) const REASON_MESSAGE: &str = "reason must have at least 20 letters";
const ONE_DELIVERY: &str = "has(self.proxyInjected) != has(self.inContainer)";
const ONE_DELIVERY_MESSAGE: &str = "exactly one of proxyInjected and inContainer must be set";
const ONE_PATTERN: &str = "(has(self.header) ? 1 : 0) + (has(self.queryParam) ? 1 : 0) + (has(self.basicAuth) ? 1 : 0) == 1";
const ONE_PATTERN_MESSAGE: &str = "exactly one of header, queryParam and basicAuth must be set";
const ONE_INTERCEPTION: &str = "!has(self.transparent) || !has(self.cooperativeAccepted)";
const ONE_INTERCEPTION_MESSAGE: &str =
    "at most one of transparent and cooperativeAccepted may be set";
const DELIVERED: &str = "(self.kind == 'UserSuppliedSecret') == has(self.deliveryMode)";
const DELIVERED_MESSAGE: &str = "deliveryMode must be set for UserSuppliedSecret, and for it alone";
const APP: &str = "(self.kind == 'GitHubApp') == has(self.appId) && (self.kind == 'GitHubApp') == has(self.installationId)";
const APP_MESSAGE: &str = "appId and installationId must be set for GitHubApp, and for it alone";
const APP_ID: &str = "^[1-9][0-9]{0,19}$";

/// What runs may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// Credentials, each under its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub credentials: Vec<CredentialGrant>,

    /// Hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub egress: Vec<EgressGrant>,

    /// Repositories that a GitHubApp's credential is good for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub git_repos: Vec<GitRepo>,

    /// What people may do with a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunGrants>,
}

/// A credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialGrant {
    /// Its name, as a template requires it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Where it comes from.
    pub provider: Provider,
}

/// Where a credential comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(DELIVERED).message(DELIVERED_MESSAGE).field_path(".deliveryMode"),
    validation = Rule::new(APP).message(APP_MESSAGE).field_path(".appId"),
)]
pub struct Provider {
    /// Which provider.
    pub kind: ProviderKind,

    /// The Secret with the credential, its key, or its pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,

    /// Id of the app, for GitHubApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = APP_ID))]
    pub app_id: Option<String>,

    /// Id of its installation, for GitHubApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = APP_ID))]
    pub installation_id: Option<String>,

    /// How many seconds one that is issued lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub rotation_seconds: Option<i32>,

    /// The hosts that it is for, where the provider's own are not meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub hosts: Vec<String>,

    /// How it gets where it is used, for UserSuppliedSecret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mode: Option<DeliveryMode>,
}

/// Which provider.
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
    strum::Display,
    strum::EnumString,
    strum::EnumIter,
)]
pub enum ProviderKind {
    /// A Secret, as it is.
    #[default]
    UserSuppliedSecret,
    /// A key of Anthropic's API.
    AnthropicAPI,
    /// Tokens of a GitHub App.
    GitHubApp,
    /// A pool of tokens, one a run.
    PATPool,
}

/// A key of a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// How a credential gets where it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_DELIVERY).message(ONE_DELIVERY_MESSAGE))]
pub struct DeliveryMode {
    /// The proxy puts it into requests; the agent never sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_injected: Option<ProxyInjected>,

    /// The agent gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_container: Option<Accepted>,
}

/// How the proxy puts a credential into requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_PATTERN).message(ONE_PATTERN_MESSAGE))]
pub struct ProxyInjected {
    /// The hosts that it is for.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub hosts: Vec<String>,

    /// As a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,

    /// As a parameter of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_param: Option<QueryParam>,

    /// As a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// What goes before the credential, such as `Bearer `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub value_prefix: Option<String>,
}

/// A parameter of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryParam {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// User and password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The user.
    #[schemars(length(min = 1, max = 253))]
    pub username: String,
}

/// What its author knows to be dangerous, and why it is done all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ACCEPTED).message(ACCEPTED_MESSAGE).field_path(".accepted"),
    validation = Rule::new(REASON).message(REASON_MESSAGE).field_path(".reason"),
)]
pub struct Accepted {
    /// That its author knows what that means.
    pub accepted: bool,

    /// Why.
    #[schemars(length(min = 20, max = 500))]
    pub reason: String,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGrant {
    /// The host, or `*.` and a domain for all hosts below it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,

    /// Ports; none, or 0 among them, for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 0, max = 65535)))]
    pub ports: Vec<i32>,
}

/// A repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepo {
    /// Who owns it.
    #[schemars(length(min = 1, max = 253))]
    pub owner: String,

    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub repo: String,

    /// What may be done with it.
    #[serde(default)]
    pub access: GitAccess,
}

/// What may be done with a repository.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GitAccess {
    /// Reading.
    #[default]
    Read,
    /// Reading and writing.
    Write,
}

/// What people may do with a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunGrants {
    /// Whether interactive runs are allowed.
    #[serde(default)]
    pub interact: bool,

    /// Shells in its pod. Absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
}

/// Shells in a run's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shell {
    /// In which container.
    #[serde(default)]
    pub target: ShellTarget,

    /// What is run; the container's shell if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command: Vec<String>,

    /// In which phases of a run; all in which it has a pod if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub allowed_phases: Vec<RunPhase>,

    /// Whether what is typed and printed is recorded.
    #[serde(default)]
    pub record_transcript: bool,
}

/// A container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShellTarget {
    /// The agent's.
    #[default]
    Agent,
    /// The runtime's.
    Runtime,
}

/// How connections are looked into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_INTERCEPTION).message(ONE_INTERCEPTION_MESSAGE))]
pub struct Interception {
    /// All of them, whatever the agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent: Option<Transparent>,

    /// Those that the agent makes by the proxy: it can go past it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooperative_accepted: Option<Accepted>,
}

/// Has no fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transparent {}
