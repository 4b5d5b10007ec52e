//! The grants of a broker policy.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_status::RunPhase;

/// The rule that the author accepted a risk.
pub(super) const ACCEPTED: &str = "self.accepted";
/// The message of [`ACCEPTED`].
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

/// Grants of a broker policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// Credentials, at most 64, each with a unique name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub credentials: Vec<CredentialGrant>,

    /// Hosts to which the agent may connect, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub egress: Vec<EgressGrant>,

    /// Repositories for which credentials of the provider GitHubApp are valid, at most 256. Not served yet:
    /// without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 256))]
    pub git_repos: Vec<GitRepo>,

    /// Operations of users on a run. None if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunGrants>,
}

/// A credential that runs get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialGrant {
    /// Name of the credential, which a template lists in requires.credentials.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Source and delivery of the credential.
    pub provider: Provider,
}

/// Source and delivery of a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(DELIVERED).message(DELIVERED_MESSAGE).field_path(".deliveryMode"),
    validation = Rule::new(APP).message(APP_MESSAGE).field_path(".appId"),
)]
pub struct Provider {
    /// Kind of the source. GitHubApp and PATPool are not served yet: a run that requires one of them fails.
    pub kind: ProviderKind,

    /// Key of a Secret with the credential, the private key of the app, or the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,

    /// ID of the GitHub App. Required for GitHubApp, and invalid for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = APP_ID))]
    pub app_id: Option<String>,

    /// ID of the installation of the GitHub App. Required for GitHubApp, and invalid for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = APP_ID))]
    pub installation_id: Option<String>,

    /// Lifetime of an issued credential in seconds, from 60 to 86400. Without effect for the providers that
    /// are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub rotation_seconds: Option<i32>,

    /// Hosts that get the credential, at most 64. grants.egress must cover them. If empty,
    /// api.anthropic.com for AnthropicAPI, github.com and api.github.com for GitHubApp and PATPool.
    /// Invalid for UserSuppliedSecret, which has proxyInjected.hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub hosts: Vec<String>,

    /// Delivery of the credential. Required for UserSuppliedSecret, and invalid for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mode: Option<DeliveryMode>,
}

/// The kind of the source of a credential.
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
    /// A value in a Secret.
    #[default]
    UserSuppliedSecret,
    /// An API key of Anthropic in a Secret.
    AnthropicAPI,
    /// Tokens of a GitHub App.
    GitHubApp,
    /// A pool of tokens, one for each run.
    PATPool,
}

/// Reference to a key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key of the value.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Delivery of a credential. Exactly one of proxyInjected and inContainer must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_DELIVERY).message(ONE_DELIVERY_MESSAGE))]
pub struct DeliveryMode {
    /// Injection by the proxy: it adds the credential to requests, and the agent never gets the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_injected: Option<ProxyInjected>,

    /// Delivery of the value to the agent's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_container: Option<Accepted>,
}

/// Hosts and form of an injected credential. Exactly one of header, queryParam and basicAuth must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_PATTERN).message(ONE_PATTERN_MESSAGE))]
pub struct ProxyInjected {
    /// Hosts that get the credential, from 1 to 64. grants.egress must cover them.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub hosts: Vec<String>,

    /// Injection as a request header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,

    /// Injection as a query parameter of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_param: Option<QueryParam>,

    /// Injection as the password of HTTP basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
}

/// A request header with a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Name of the header.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Text before the credential, such as `Bearer `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub value_prefix: Option<String>,
}

/// A query parameter with a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryParam {
    /// Name of the query parameter.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// HTTP basic authentication with a credential as its password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// User name.
    #[schemars(length(min = 1, max = 253))]
    pub username: String,
}

/// Confirmation of a risk, with a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ACCEPTED).message(ACCEPTED_MESSAGE).field_path(".accepted"),
    validation = Rule::new(REASON).message(REASON_MESSAGE).field_path(".reason"),
)]
pub struct Accepted {
    /// Confirmation that the author accepts the risk; must be true.
    pub accepted: bool,

    /// Reason for the decision, from 20 to 500 characters.
    #[schemars(length(min = 20, max = 500))]
    pub reason: String,
}

/// A host to which the agent may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGrant {
    /// Host name, or `*.` and a domain for all hosts below it. Addresses and names inside the cluster are
    /// invalid.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,

    /// Ports, at most 64. Any port if empty or if 0 is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 0, max = 65535)))]
    pub ports: Vec<i32>,
}

/// A Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepo {
    /// Owner of the repository.
    #[schemars(length(min = 1, max = 253))]
    pub owner: String,

    /// Name of the repository.
    #[schemars(length(min = 1, max = 253))]
    pub repo: String,

    /// Permitted operations: Read or Write.
    #[serde(default)]
    pub access: GitAccess,
}

/// The permitted operations on a Git repository.
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
    /// Read only.
    #[default]
    Read,
    /// Read and write.
    Write,
}

/// Operations of users on a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunGrants {
    /// Permits interactive runs, which are not served yet.
    #[serde(default)]
    pub interact: bool,

    /// Shells in the pod of a run. Not served yet: without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
}

/// Shells in the pod of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shell {
    /// Container of the shell: agent or runtime.
    #[serde(default)]
    pub target: ShellTarget,

    /// Command of the shell. The default shell of the container if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command: Vec<String>,

    /// Phases of a run in which shells are permitted. All phases with a pod if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub allowed_phases: Vec<RunPhase>,

    /// Records input and output of the shell.
    #[serde(default)]
    pub record_transcript: bool,
}

/// The container of a shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShellTarget {
    /// The container of the agent.
    #[default]
    Agent,
    /// The container of the runtime.
    Runtime,
}

/// Mode of the interception of connections. At most one field may be set; transparent if none is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_INTERCEPTION).message(ONE_INTERCEPTION_MESSAGE))]
pub struct Interception {
    /// Interception of all connections of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent: Option<Transparent>,

    /// Interception only of the connections that the agent opens through the proxy; the agent can bypass
    /// it. Not served yet where Pod Security forbids interception: the run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooperative_accepted: Option<Accepted>,
}

/// Interception of all connections of the pod; it has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transparent {}
