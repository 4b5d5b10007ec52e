//! Composites.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use oz_composites::Account;
use oz_core::tickets::{CheckError, CheckSecret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{LABEL, Number, SUBDOMAIN};

/// Composites.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Composites {
    /// Run CompositeControllers (metacontroller.k8s.io/v1alpha1): controllers that are functions.
    pub enabled: bool,
    /// Maximum number of composites that run.
    pub max: Number<1, 1000000>,
    /// Namespaces of Rego policies: in each namespace, the keys `*.rego` of the ConfigMaps are one bundle in Rego. For
    /// a hook at `http://SERVICE.NAMESPACE/v0/data/PATH`, the operator evaluates `data.PATH` of that bundle in process.
    #[schemars(inner(length(max = 63), regex(pattern = LABEL)), extend("uniqueItems" = true))]
    pub policy_namespaces: Vec<String>,
    /// Labels that a composite must have for this installation to run it: for several installations, or in parallel
    /// with MetaController.
    #[schemars(extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub selector: BTreeMap<String, String>,
    /// Names of CompositeControllers with parents that adopt every object that their selector matches and that has no
    /// controller, as with MetaController: a user who may create such a parent can cause the deletion of these
    /// objects.
    #[schemars(inner(length(max = 253), regex(pattern = SUBDOMAIN)), extend("uniqueItems" = true))]
    pub adopt_all_matching: Vec<String>,
    /// The service account with which the operator reads and writes for composites that name no account. By default
    /// NAME-composites in oz's namespace.
    pub account: Option<Account>,
    /// Further service accounts that a composite may name, by spec.runAs, or by the annotation
    /// oz.wizardofoz.co/run-as. The operator must be allowed to impersonate them.
    pub accounts: Vec<Account>,
    /// Servers of hooks that require authentication or other certificate authorities than the system's, by their hosts.
    pub hook_servers: BTreeMap<String, HookServer>,
    /// Addresses of hosts that are used instead of the resolved ones, such as {functions.hooks: "127.0.0.1:8080"}: for
    /// tests, and for the development of a function.
    pub hook_addresses: BTreeMap<String, SocketAddr>,
}

impl Default for Composites {
    fn default() -> Self {
        Self {
            enabled: false,
            max: Number::new(200),
            policy_namespaces: Vec::new(),
            selector: BTreeMap::new(),
            adopt_all_matching: Vec::new(),
            account: None,
            accounts: Vec::new(),
            hook_servers: BTreeMap::new(),
            hook_addresses: BTreeMap::new(),
        }
    }
}

impl Composites {
    /// Checks the servers of hooks.
    ///
    /// # Errors
    /// The field with a fault.
    pub(crate) fn check(&self) -> Result<(), CheckError> {
        for (host, server) in &self.hook_servers {
            let at = format!("hookServers.{host}");
            let letter =
                |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
            let fine = !host.is_empty() && host.len() <= 253 && host.bytes().all(letter);
            if !fine || host.starts_with(['.', '-']) {
                let why = "the name must be a host, in lower case and without a port".to_owned();
                return Err(CheckError { at, why });
            }
            server.secret.check(&at, server.public_roots)?;
        }
        Ok(())
    }
}

/// A server of hooks. The operator authenticates over https only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HookServer {
    /// The Secret of the server, in oz's namespace.
    pub secret: CheckSecret,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    pub public_roots: bool,
}

impl HookServer {
    /// Returns the directory of the Secret of a host, in the directory of Secrets.
    #[must_use]
    pub fn directory(secrets: &Path, host: &str) -> PathBuf {
        secrets.join("hooks").join(host)
    }
}
