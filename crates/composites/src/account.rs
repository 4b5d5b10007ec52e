//! The service accounts with which composites read and write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service account.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// The namespace of the account.
    pub namespace: String,
    /// The name of the account.
    pub name: String,
}

impl Account {
    /// Returns the user name of the account in the API server.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns the groups of the account.
    #[must_use]
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The reason why a text names no account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The text has another form.
    #[error("{text:?} is not NAMESPACE/NAME of a service account")]
    Form {
        /// The text.
        text: String,
    },
}

impl std::str::FromStr for Account {
    type Err = AccountError;

    fn from_str(text: &str) -> Result<Self, AccountError> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(AccountError::Form {
                text: text.to_owned(),
            }),
        }
    }
}

/// The accounts that composites may use.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// The account of composites that name none.
    pub default: Account,
    /// Further accounts, which composites may name.
    pub others: Vec<Account>,
}

impl Accounts {
    /// Returns the account of a composite that names this account, or none; `None` if the account is not listed.
    #[must_use]
    pub fn listed<'a>(&'a self, named: Option<&'a Account>) -> Option<&'a Account> {
        let Some(named) = named else {
            return Some(&self.default);
        };
        let mut all = std::iter::once(&self.default).chain(&self.others);
        all.find(|account| *account == named)
    }
}
