//! The policies in Rego that a declaration names.

use std::time::Duration;

use oz_api::rego::Language;

/// A function that is a policy in Rego.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProcess {
    /// The location of the policy's text.
    pub modules: Modules,
    /// The document of the function, without `data.`, such as `controller`.
    pub path: String,
    /// The language; if absent, v1 is tried, and then v0.
    pub language: Option<Language>,
    /// True if an error of a built-in function fails the evaluation.
    pub strict: bool,
    /// The maximum duration of one evaluation; `None` if only the general limit applies.
    pub evaluation: Option<Duration>,
}

/// The location of the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Modules {
    /// All modules of a namespace of policies.
    Bundle(String),
    /// A key of a ConfigMap in such a namespace.
    Key {
        /// The namespace.
        namespace: String,
        /// The name of the ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// Text in the declaration.
    Inline(String),
}

/// Writes the location of the modules, for messages.
impl std::fmt::Display for Modules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundle(namespace) => formatter.write_str(namespace),
            Self::Key {
                namespace,
                name,
                key,
            } => write!(formatter, "{namespace}/{name}/{key}"),
            Self::Inline(_) => formatter.write_str("spec.policy.inline"),
        }
    }
}

impl Modules {
    /// Returns the namespace of policies that contains the modules, if there is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Bundle(namespace) | Self::Key { namespace, .. } => Some(namespace),
            Self::Inline(_) => None,
        }
    }
}

impl InProcess {
    /// Reads the URL of an OPA as a policy, if its Service is in one of these namespaces of policies. Such a URL is
    /// neither resolved nor called.
    #[must_use]
    pub fn from_url_in(url: &str, namespaces: &[String]) -> Option<Self> {
        let policy = Self::from_url(url)?;
        let namespace = policy.modules.namespace()?;
        namespaces
            .iter()
            .any(|listed| listed == namespace)
            .then_some(policy)
    }

    /// Reads a URL as [`InProcess::from_url_in`] does, for any namespace of the Service.
    #[must_use]
    pub fn from_url(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_once('/')?;
        let host = authority.split(':').next()?;
        let mut labels = host.split('.');
        let (_, namespace) = (labels.next()?, labels.next()?);
        let rest = labels.collect::<Vec<_>>();
        let is_service = rest.is_empty() || rest[0] == "svc";
        let path = ["v0/data/", "v1/data/"]
            .iter()
            .find_map(|data| path.strip_prefix(data))?;
        let path = path.split('?').next()?.trim_end_matches('/');
        (is_service && !path.is_empty()).then(|| Self {
            modules: Modules::Bundle(namespace.to_owned()),
            path: path.replace('/', "."),
            language: None,
            strict: false,
            evaluation: None,
        })
    }
}
