//! The messages between the containers of a run and the broker, over TLS, as JSON. They never name the run: the broker
//! identifies it by the pod to which the caller's token is bound.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RunEvent;

/// The maximum size of a body in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// The maximum size of a termination message in bytes: the kubelet truncates it there.
pub const MAX_RESULT: usize = 4096;

/// The route of the run of the caller: `GET`, answered by [`RunAnswer`].
pub const RUN_PATH: &str = "/v1/run";
/// The route that takes events: `POST` of a [`Report`], answered by 204.
pub const REPORT_PATH: &str = "/v1/report";
/// The route of the grants of the caller's run, for the proxy only: `GET` with `?seen=DIGEST`, answered by
/// [`RunGrants`]. With the digest of the current grants, the response is held until the grants change, for at most
/// [`GRANTS_HOLD_SECONDS`].
pub const GRANTS_PATH: &str = "/v1/grants";
/// The route that lends a credential, for the proxy only: `POST` of a [`CredentialRequest`], answered by
/// [`LentCredential`].
pub const CREDENTIAL_PATH: &str = "/v1/credential";

/// The maximum time in seconds for which the broker holds a request for grants.
pub const GRANTS_HOLD_SECONDS: u64 = 20;
/// The time in seconds after which a proxy without a response of the broker refuses every request, and closes its
/// connections.
pub const GRANTS_LAPSE_SECONDS: u64 = 30;
/// The maximum time in seconds for which the proxy keeps a credential.
pub const LENT_SECONDS: u64 = 300;
/// The maximum size of a response with grants in bytes.
pub const MAX_GRANTS: usize = 1024 * 1024;
/// The maximum size of the value of a credential in bytes.
pub const MAX_VALUE: usize = 16 * 1024;
/// The maximum number of destinations in a report.
pub const MAX_DESTINATIONS: usize = 64;

/// The audience of the token of the `oz` container: [`RUN_PATH`], and events in [`REPORT_PATH`].
pub const REPORTER_AUDIENCE: &str = "oz-broker";
/// The audience of the token of the proxy: [`GRANTS_PATH`], [`CREDENTIAL_PATH`], and destinations in [`REPORT_PATH`].
pub const PROXY_AUDIENCE: &str = "oz-broker-proxy";

/// The run of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// The inline prompt of the run; absent if its prompt has another source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The last events of a run, without texts of prompts and answers, the oldest first; they replace the events of earlier
/// reports. From the proxy: the counts of destinations since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The events; only from the `oz` container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<RunEvent>,
    /// The destinations, at most [`MAX_DESTINATIONS`]; only from the proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressCount>,
}

/// The connections and requests to one destination since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressCount {
    /// The host that the client named; empty if it named none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The port; 0 for a name that the agent resolved.
    pub port: u16,
    /// The number of connections that the proxy opened.
    #[serde(default)]
    pub granted: u64,
    /// The number of connections, requests and names that the proxy refused.
    #[serde(default)]
    pub refused: u64,
    /// The reason of the last refusal, one of [`EgressReason`]'s names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EgressReason>,
    /// The name of the credential that the last refusal was about, or that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The number of requests that carried that credential.
    #[serde(default)]
    pub uses: u64,
}

/// The reason for which the proxy refused a connection, a request or a name.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
pub enum EgressReason {
    /// No policy grants the host, or not this port.
    HostNotGranted,
    /// The client named no host: a connection without SNI, or with encrypted SNI.
    NoHost,
    /// The host of the request differs from the host of the connection.
    HostMismatch,
    /// The connection speaks another protocol than HTTP/1.1 or TLS, or the request is malformed.
    Protocol,
    /// The client does not trust the proxy's authority, or the TLS handshake failed for another reason.
    Handshake,
    /// The name resolves to no address that runs may reach.
    Address,
    /// The upstream's certificate is not valid for the host, or the upstream does not respond.
    Upstream,
    /// The request carries a placeholder outside the place that the policy names, or for another host.
    Placeholder,
    /// The request carries another value in a place where credentials are sent.
    ForeignCredential,
    /// The broker did not lend the credential.
    CredentialNotLent,
    /// The proxy has had no response of the broker for too long.
    GrantsStale,
    /// The limit of connections is reached.
    TooMany,
    /// The destination is the proxy itself.
    ProxyPort,
}

/// The grants of a run: what its proxy lets through at this moment. A host or credential that is not in them is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunGrants {
    /// The digest of the other fields.
    pub digest: String,
    /// The hosts that the policies grant.
    pub hosts: Vec<HostGrant>,
    /// The credentials that the proxy injects.
    pub credentials: Vec<InjectedCredential>,
    /// Certificate authorities, as PEM, that the proxy trusts in addition to the public ones.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificates: String,
}

/// A granted host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostGrant {
    /// The host, or `*.` and a domain, in the form of [`Hosts`](super::Hosts).
    pub host: String,
    /// The ports; empty for any.
    pub ports: Vec<u16>,
}

/// A credential that the proxy puts into requests instead of its placeholder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectedCredential {
    /// The name, as the template requires it.
    pub name: String,
    /// The text that the agent has instead of the value.
    pub placeholder: String,
    /// The hosts to which the proxy sends it, in the form of [`Hosts`](super::Hosts).
    pub hosts: Vec<String>,
    /// The place of the request in which the proxy replaces the placeholder.
    pub place: CredentialPlace,
    /// The version of the value; a credential that was lent with another version is no longer valid.
    #[serde(default)]
    pub version: String,
}

/// The place in a request that holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CredentialPlace {
    /// A header, with a text before the value.
    Header {
        /// The name of the header.
        name: String,
        /// The text before the value, such as `Bearer `.
        prefix: String,
    },
    /// A parameter of the query.
    Query {
        /// The name of the parameter.
        name: String,
    },
    /// The password of `Authorization: Basic`.
    Basic {
        /// The user.
        username: String,
    },
    /// The header `x-api-key`; of the other headers, only those of Anthropic's API are forwarded.
    Anthropic,
}

/// A request to lend a credential for requests to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialRequest {
    /// The name of the credential.
    pub name: String,
    /// The host, in lower case.
    pub host: String,
}

/// A credential that the proxy may use for some time, unless the grants of the run change before.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LentCredential {
    /// The value.
    pub value: String,
    /// The version, see [`InjectedCredential::version`].
    pub version: String,
    /// The time in seconds for which the proxy may keep it, at most [`LENT_SECONDS`].
    pub seconds: u64,
}

impl fmt::Debug for LentCredential {
    /// Writes everything but the value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LentCredential")
            .field("version", &self.version)
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

/// The reason why the broker denied a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The code for programs, such as `RunEnded`.
    pub code: String,
    /// The message for users.
    pub message: String,
}
