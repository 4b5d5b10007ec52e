//! The way to servers outside the cluster.

use std::collections::BTreeSet;

use oz_outbound::{Proxies, ProxySettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OzConfiguration;

/// The way to servers outside the cluster: the audit collector, notification routes, ticket checks, hooks of composites
/// and buckets. Requests to the API server do not use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Outbound {
    /// URL of an HTTP proxy, without user and password. If empty, the environment of the process names the proxy
    /// (HTTPS_PROXY; HTTP_PROXY for servers at http://). oz requests a tunnel (CONNECT) for every server.
    #[schemars(regex(pattern = r"^$|^http://[^/@ ]+/?$"))]
    pub proxy: String,
    /// Servers that are reached without the proxy, as in NO_PROXY: `example.com` with all names below it,
    /// `.example.com` without the name itself, addresses, networks, or `*`; each may end in :PORT. If empty, the
    /// environment names them (NO_PROXY). This machine is always reached without the proxy.
    #[schemars(inner(regex(pattern = r"^[^, ]+$")), extend("uniqueItems" = true))]
    pub no_proxy: Vec<String>,
    /// The Secret of the proxy, in oz's namespace. Its keys are username and password.
    pub secret: ProxySecret,
    /// Hosts of proxies that may have a loopback or link-local address.
    pub allowed_hosts: BTreeSet<String>,
}

/// The Secret of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProxySecret {
    /// Name of the Secret. Empty for none.
    pub name: String,
}

impl Outbound {
    /// Checks the URL of the proxy, and the entries. An error is a field and its fault.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        if !self.proxy.is_empty()
            && let Err(why) = Proxies::check(&self.proxy)
        {
            return Err(("proxy".to_owned(), why.to_string()));
        }
        let empty = |entry: &String| entry.is_empty() || entry.contains([',', ' ']);
        match self.no_proxy.iter().position(empty) {
            Some(number) => {
                let why = "must be one host, address or network".to_owned();
                Err((format!("noProxy[{number}]"), why))
            }
            None => Ok(()),
        }
    }
}

impl OzConfiguration {
    /// Returns the proxies of a process; `variable` reads its environment.
    #[must_use]
    pub fn proxies(&self, variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let outbound = &self.outbound;
        let has_secret = !outbound.secret.name.is_empty();
        let settings = ProxySettings {
            proxy: outbound.proxy.clone(),
            no_proxy: outbound.no_proxy.clone(),
            secret: has_secret.then(|| self.installation.secrets.join("proxy")),
            allowed_hosts: outbound.allowed_hosts.clone(),
        };
        Proxies::new(settings, variable)
    }
}
