//! A user, in the form that all components of oz use.

use serde::{Deserialize, Serialize};

/// A user as the API server authenticated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Requester {
    /// User name.
    pub user: String,
    /// Unique ID of the user from the identity provider; empty if it provides none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups of the user.
    #[serde(default)]
    pub groups: Vec<String>,
}

impl Requester {
    /// Returns namespace and name, if the user is a service account.
    #[must_use]
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.user
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')
    }
}
