//! The account with which the gate opens sessions.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::rbac::v1::Subject;
use oz_api::{Requester, names};
use serde::{Deserialize, Serialize};

use crate::validate::dns_subdomain;

/// The gate's service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAccount {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub name: String,
}

/// The error for a text that does not name a service account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a service account: write NAMESPACE/NAME, such as oz-system/oz-gate")]
pub struct GateAccountError(String);

impl GateAccount {
    /// Returns the account as an RBAC subject.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: self.name.clone(),
            namespace: Some(self.namespace.clone()),
        }
    }

    /// Returns the user name of the account.
    #[must_use]
    pub fn user(&self) -> String {
        names::service_account(&self.namespace, &self.name)
    }

    /// Checks whether this user is the gate.
    #[must_use]
    pub fn is(&self, user: &Requester) -> bool {
        user.service_account() == Some((self.namespace.as_str(), self.name.as_str()))
    }
}

impl FromStr for GateAccount {
    type Err = GateAccountError;

    fn from_str(text: &str) -> Result<Self, GateAccountError> {
        let wrong = || GateAccountError(text.to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
        if dns_subdomain(namespace).is_err() || dns_subdomain(name).is_err() {
            return Err(wrong());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for GateAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
