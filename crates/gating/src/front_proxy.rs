//! The authentication of a user by the headers of the API server that forwards the user's requests. The ConfigMap
//! `extension-apiserver-authentication` names these headers, and the authorities of the API server's client
//! certificate.
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/#authentication-flow>.

use std::collections::BTreeMap;

use oz_api::Requester;

/// The namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-system";
/// The name of the ConfigMap.
pub const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// The maximum number of groups of a user, and the maximum length of a name.
const MOST_GROUPS: usize = 1_000;
const LONGEST_NAME: usize = 4 << 10;

/// The headers and the certificate with which the API server forwards authenticated users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// The authorities (PEM) that sign the API server's certificate.
    pub authorities: String,
    /// The common names that the certificate may have; any name if the list is empty.
    pub names: Vec<String>,
    users: Vec<String>,
    uids: Vec<String>,
    groups: Vec<String>,
}

/// The reason why the ConfigMap cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrontProxyError {
    /// An entry is missing.
    #[error(
        "ConfigMap {NAMESPACE}/{CONFIG_MAP} has no entry {0}; start the API server with its \
         --requestheader flags"
    )]
    NoEntry(&'static str),
    /// An entry is not a list.
    #[error("ConfigMap {NAMESPACE}/{CONFIG_MAP}, {name}: {error}")]
    Unreadable {
        /// Name of the entry.
        name: &'static str,
        /// The reason.
        error: serde_json::Error,
    },
    /// The list of headers is empty.
    #[error("ConfigMap {NAMESPACE}/{CONFIG_MAP} names no header of user names")]
    NoUserHeader,
}

impl FrontProxy {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// If an entry is missing or cannot be read. The error names the entry.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, FrontProxyError> {
        let entry = |name| {
            let value = data.get(name).filter(|value| !value.trim().is_empty());
            value.ok_or(FrontProxyError::NoEntry(name))
        };
        let list = |name| -> Result<Vec<String>, FrontProxyError> {
            let read = serde_json::from_str(entry(name)?);
            read.map_err(|error| FrontProxyError::Unreadable { name, error })
        };
        let users = list("requestheader-username-headers")?;
        if users.is_empty() {
            return Err(FrontProxyError::NoUserHeader);
        }
        Ok(Self {
            authorities: entry("requestheader-client-ca-file")?.clone(),
            names: list("requestheader-allowed-names")?,
            users,
            groups: list("requestheader-group-headers")?,
            // The entry is absent before Kubernetes 1.32.
            uids: list("requestheader-uid-headers")
                .into_iter()
                .flatten()
                .collect(),
        })
    }

    /// Returns the user that the headers name; `values` returns all values of a header. Returns `None` if they name no
    /// user, or several.
    #[must_use]
    pub fn user<'a>(&self, values: impl Fn(&str) -> Vec<&'a [u8]>) -> Option<Requester> {
        let text = |value: &[u8]| {
            let text = std::str::from_utf8(value).ok()?;
            let good = !text.is_empty() && text.len() <= LONGEST_NAME;
            good.then(|| text.to_owned())
        };
        let one = |headers: &[String]| -> Option<Option<String>> {
            let all = headers.iter().flat_map(|header| values(header));
            match all.collect::<Vec<_>>().as_slice() {
                [] => Some(None),
                [one] => text(one).map(Some),
                _ => None,
            }
        };
        let groups = self.groups.iter().flat_map(|header| values(header));
        let groups: Option<Vec<String>> = groups.map(text).collect();
        Some(Requester {
            user: one(&self.users)??,
            uid: one(&self.uids)?.unwrap_or_default(),
            groups: groups.filter(|groups| groups.len() <= MOST_GROUPS)?,
        })
    }
}
