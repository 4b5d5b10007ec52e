//! The Secrets of servers that the operator asks.

use oz_api::HeaderKeys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fault of checks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct CheckError {
    /// The path of the field, such as `checks.jira`.
    pub at: String,
    /// The fault.
    pub why: String,
}

/// The Secret of a server that the operator asks, and the names of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckSecret {
    /// Name of the Secret. Empty for none.
    pub name: String,
    /// Its key with a bearer token.
    pub token: Option<String>,
    /// Its key with the whole value of the header Authorization, such as `Basic …`, instead of a bearer token.
    pub authorization: Option<String>,
    /// Other headers that authenticate oz: by their names, the keys with their values.
    pub headers: HeaderKeys,
    /// Its key with the CA bundle (PEM) that verifies the server.
    pub ca: Option<String>,
}

impl CheckSecret {
    /// Checks which keys are given together, for the server at the path `at`.
    ///
    /// # Errors
    /// The field with a fault.
    pub fn check(&self, at: &str, public_roots: bool) -> Result<(), CheckError> {
        let failed = |field: &str, why: &str| CheckError {
            at: format!("{at}.{field}"),
            why: why.to_owned(),
        };
        let keys = [&self.token, &self.authorization, &self.ca];
        let has_keys = !self.headers.is_empty() || keys.into_iter().any(Option::is_some);
        if self.name.is_empty() && has_keys {
            return Err(failed("secret.name", "is required for its keys"));
        }
        if self.token.is_some() && self.authorization.is_some() {
            let why = "excludes secret.token: both are the header Authorization";
            return Err(failed("secret.authorization", why));
        }
        if public_roots && self.ca.is_some() {
            let why = "excludes secret.ca: set one of them";
            return Err(failed("publicRoots", why));
        }
        Ok(())
    }
}
