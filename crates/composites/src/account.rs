//! As whom composites read and write.

use serde::{Deserialize, Serialize};

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// The user that it is to the API server.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that it is in.
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

impl std::str::FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!(
                "{text:?} is not NAMESPACE/NAME of a service account"
            )),
        }
    }
}

/// The accounts that composites may be.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// That of composites that name none.
    pub default: Account,
    /// Further ones, which they may name.
    pub others: Vec<Account>,
}

impl Accounts {
    /// As whom a composite reads and writes that names this account, or none; `None` if it is not listed.
    #[must_use]
    pub fn listed<'a>(&'a self, named: Option<&'a Account>) -> Option<&'a Account> {
        let Some(named) = named else {
            return Some(&self.default);
        };
        let mut all = std::iter::once(&self.default).chain(&self.others);
        all.find(|account| *account == named)
    }
}
