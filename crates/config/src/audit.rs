//! The audit trail.

use std::fmt;
use std::path::{Path, PathBuf};

use oz_api::HeaderKeys;
use oz_trail::verify::PUBLISHED_WITHIN;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{AtMost, KEY, NotNegative, Text, URL};

/// The maximum interval of checkpoints, in seconds. A verifier reports a later checkpoint as removed.
const CHECKPOINT: i64 = PUBLISHED_WITHIN.as_secs();

/// The audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Audit {
    /// Destination of audit records as lines of JSON: `stdout`, `none`, or a file to append to.
    pub log: Text<LogTarget>,
    /// Whether a record in a file counts as written only when it is on the disk.
    pub fsync: Fsync,
    /// Write each audit record to the cluster, as an AuditEvent.
    pub objects: bool,
    /// Retention of AuditEvents. The operator deletes each at the exact instant.
    pub retention: NotNegative,
    /// Maximum number of AuditEvents, regardless of their age; 0 for no limit. The operator records that it deletes
    /// the oldest before their time, and `ozctl audit verify` takes this record into account.
    pub max_events: u64,
    /// Age at which the next key replaces the key with which a component signs the audit trail.
    pub key_life: NotNegative,
    /// Time after which a signed checkpoint covers an audit record, 30s at most.
    pub checkpoint: AtMost<CHECKPOINT>,
    /// A collector that receives each audit record as a CloudEvent.
    pub http: Collector,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            log: Text(LogTarget::Stdout),
            fsync: Fsync::Always,
            objects: true,
            retention: NotNegative::seconds(30 * 24 * 3_600),
            max_events: 100_000,
            key_life: NotNegative::seconds(90 * 24 * 3_600),
            checkpoint: AtMost(jiff::SignedDuration::from_secs(5)),
            http: Collector::default(),
        }
    }
}

/// The destination of audit records as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// No lines are written.
    None,
    /// A file.
    File(PathBuf),
}

impl std::str::FromStr for LogTarget {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "stdout" => Self::Stdout,
            "none" => Self::None,
            path => Self::File(PathBuf::from(path)),
        })
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => formatter.write_str("stdout"),
            Self::None => formatter.write_str("none"),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

/// The instant at which a record in a file counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// After the disk confirmed the write.
    #[default]
    Always,
    /// After the operating system accepted the write.
    Never,
}

/// The collector of audit records.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Collector {
    /// URL of the collector. Empty for no collector.
    #[schemars(regex(pattern = URL))]
    pub url: String,
    /// Deny new access while the collector does not accept audit records.
    pub required: bool,
    /// Number of audit records that wait in memory while the collector is unreachable. If there are more, the oldest
    /// are dropped; they stay in the log and in the cluster.
    #[schemars(range(min = 1))]
    pub spool: usize,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    pub public_roots: bool,
    /// The Secret of the collector, in oz's namespace.
    pub secret: CollectorSecret,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            url: String::new(),
            required: false,
            spool: 10_000,
            public_roots: false,
            secret: CollectorSecret::default(),
        }
    }
}

impl Collector {
    /// Returns the URL.
    ///
    /// # Errors
    /// The text is not a URL with a scheme and a host.
    pub fn uri(&self) -> Result<http::Uri, CollectorUrlError> {
        let uri: http::Uri = self.url.parse().map_err(|_| CollectorUrlError)?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) => Ok(uri),
            _ => Err(CollectorUrlError),
        }
    }

    /// Returns the file with the bearer token, in the directory of Secrets.
    #[must_use]
    pub fn token_file(&self, secrets: &Path) -> Option<PathBuf> {
        file(secrets, "collector", &self.secret.name, &self.secret.token)
    }

    /// Returns the file with the value of the header Authorization, in the directory of Secrets.
    #[must_use]
    pub fn authorization_file(&self, secrets: &Path) -> Option<PathBuf> {
        let secret = &self.secret;
        file(secrets, "collector", &secret.name, &secret.authorization)
    }

    /// Returns other headers by their names, with the files of their values in the directory of Secrets.
    #[must_use]
    pub fn header_files(&self, secrets: &Path) -> Vec<(String, PathBuf)> {
        self.secret.headers.files(&secrets.join("collector"))
    }

    /// Returns the file with the certificate authorities, in the directory of Secrets.
    #[must_use]
    pub fn ca_file(&self, secrets: &Path) -> Option<PathBuf> {
        file(secrets, "collector", &self.secret.name, &self.secret.ca)
    }
}

impl CollectorSecret {
    /// Checks which keys are given together. An error is a field of the collector and its fault.
    pub(crate) fn check(&self, public_roots: bool) -> Result<(), (&'static str, &'static str)> {
        let keys = [&self.token, &self.authorization, &self.ca];
        let has_keys = !self.headers.is_empty() || keys.iter().any(|key| !key.is_empty());
        if self.name.is_empty() && has_keys {
            return Err(("secret.name", "is required for its keys"));
        }
        if !self.token.is_empty() && !self.authorization.is_empty() {
            let why = "excludes secret.token: both are the header Authorization";
            return Err(("secret.authorization", why));
        }
        if public_roots && !self.ca.is_empty() {
            return Err(("publicRoots", "excludes secret.ca: set one of them"));
        }
        Ok(())
    }
}

/// The error for a text that is not the URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a URL, such as https://collector.example/oz")]
pub struct CollectorUrlError;

/// Returns the file of a key of a mounted Secret; `None` if no Secret or no key is configured.
pub(crate) fn file(secrets: &Path, folder: &str, name: &str, key: &str) -> Option<PathBuf> {
    let is_named = !name.is_empty() && !key.is_empty();
    is_named.then(|| secrets.join(folder).join(key))
}

/// The Secret of the collector, and the names of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CollectorSecret {
    /// Name of the Secret. Empty for none.
    pub name: String,
    /// Its key with the bearer token that the collector requires. Empty for none.
    #[schemars(regex(pattern = KEY))]
    pub token: String,
    /// Its key with the whole value of the header Authorization, instead of a bearer token. Empty for none.
    #[schemars(regex(pattern = KEY))]
    pub authorization: String,
    /// Other headers that authenticate oz: by their names, the keys with their values.
    pub headers: HeaderKeys,
    /// Its key with the CA bundle (PEM) that verifies the collector's certificate. Empty for none.
    #[schemars(regex(pattern = KEY))]
    pub ca: String,
}
