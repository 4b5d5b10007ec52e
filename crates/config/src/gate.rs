//! The gate.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit::file;
use crate::values::{KEY, NotNegative, Number, URL};
use crate::webhook::Service;

/// The gate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Gate {
    /// The installation has a gate, with the service account NAME-gate. Without it, the operator denies requests for
    /// templates with `sessions: Gate`.
    pub enabled: bool,
    /// Maximum number of sessions that a replica carries at once.
    pub max_sessions: Number<1, 10000>,
    /// Maximum number of these sessions for one user. A forwarded port counts as one for each connection.
    pub max_sessions_per_user: Number<1, 10000>,
    /// Whether the operator deletes the APIService when no replica was ready for 30 s, and creates it again with the
    /// first ready replica: while the APIService does not respond, the API server deletes no namespace. Disable this
    /// if another component maintains the APIService, such as a GitOps controller that restores deleted objects.
    pub unregister_when_unavailable: bool,
    /// Time after SIGTERM during which a replica still opens sessions, since the API server does not notice at once
    /// that the replica stops.
    pub drain: NotNegative,
    /// Time for which sessions continue when a replica stops, in seconds.
    pub session_drain_seconds: Number<0, 86400>,
    /// The Service through which the API server connects.
    pub service: Service,
    /// Recordings of sessions.
    pub recordings: Recordings,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            enabled: false,
            max_sessions: Number::new(500),
            max_sessions_per_user: Number::new(50),
            unregister_when_unavailable: true,
            drain: NotNegative::seconds(5),
            session_drain_seconds: Number::new(60),
            service: Service::default(),
            recordings: Recordings::default(),
        }
    }
}

/// Recordings of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Recordings {
    /// Location of stored recordings: `s3://BUCKET/PREFIX`, or `file:///DIRECTORY`. Empty for no recordings.
    #[schemars(regex(pattern = r"^$|^s3://[^/ ]+(/[^ ]*)?$|^file:///[^ ]*$"))]
    pub url: String,
    /// Server of the bucket, as a URL; if empty, Amazon's server of the region.
    #[schemars(regex(pattern = URL))]
    pub endpoint: String,
    /// Region of the bucket.
    #[schemars(length(min = 1))]
    pub region: String,
    /// Write the bucket into the path of URLs, not into their host: most servers except Amazon's need this.
    pub path_style: bool,
    /// The Secret of the bucket, in oz's namespace. Its keys access-key-id and secret-access-key, and session-token if
    /// it exists, sign requests.
    pub secret: RecordingSecret,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    pub public_roots: bool,
    /// Alternative to the Secret's keys: a role. The gate exchanges a token of its service account for the credentials
    /// of the role.
    pub web_identity: WebIdentity,
    /// Recipients of age (age1…), up to 16, to which the gate encrypts recordings; `age-keygen` creates recipients.
    /// Only a user with the identity of one recipient can then play a recording. Empty: no encryption.
    // The gate parses them: an error must not quote a secret identity that is given by mistake.
    #[schemars(inner(regex(pattern = r"^age1[02-9ac-hj-np-z]{58}$")), length(max = 16), extend("uniqueItems" = true))]
    pub recipients: Vec<String>,
    /// Number of days during which no user may delete stored recordings (Object Lock of the bucket, mode COMPLIANCE);
    /// 0 for no retention.
    pub retention_days: Number<0, 36500>,
    /// Options of the protocol of S3.
    pub s3: RecordingS3,
    /// The spool with recordings that are not stored yet.
    pub spool: Spool,
}

impl Default for Recordings {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            path_style: false,
            secret: RecordingSecret::default(),
            public_roots: false,
            web_identity: WebIdentity::default(),
            recipients: Vec::new(),
            retention_days: Number::new(0),
            s3: RecordingS3::default(),
            spool: Spool::default(),
        }
    }
}

impl Recordings {
    /// Returns the file with the certificate authorities of the bucket's server, in the directory of Secrets.
    #[must_use]
    pub fn ca_file(&self, secrets: &Path) -> Option<PathBuf> {
        file(secrets, "recordings", &self.secret.name, &self.secret.ca)
    }

    /// Returns the directory with the keys that sign requests, in the directory of Secrets.
    #[must_use]
    pub fn credentials(&self, secrets: &Path) -> PathBuf {
        secrets.join("recordings")
    }

    /// Returns the file with the token of the gate's service account, in the directory of Secrets.
    #[must_use]
    pub fn token_file(&self, secrets: &Path) -> PathBuf {
        secrets.join("recordings-identity/token")
    }
}

/// The Secret of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordingSecret {
    /// Name of the Secret. Empty for none.
    pub name: String,
    /// Name of its key with the CA bundle (PEM) that verifies the server. Required for https without publicRoots.
    #[schemars(regex(pattern = KEY))]
    pub ca: String,
}

/// Options of the protocol of S3.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordingS3 {
    /// Upload each part with `If-None-Match: *`, with which the server stores it only under a name that does not exist
    /// yet. Set this to false for a server that responds NotImplemented to this header: the gate then overwrites an
    /// object that has the name of a part, and does not report it.
    pub conditional_writes: bool,
}

impl Default for RecordingS3 {
    fn default() -> Self {
        Self {
            conditional_writes: true,
        }
    }
}

/// A role for the credentials of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct WebIdentity {
    /// The role, as its server names it (ARN). Empty for no role.
    pub role: String,
    /// Server that exchanges tokens (STS), as a URL; if empty, Amazon's server of the region.
    #[schemars(regex(pattern = URL))]
    pub endpoint: String,
}

/// The spool of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Spool {
    /// Directory of the spool. No other process may use it.
    pub directory: PathBuf,
    /// Maximum size of the recordings in MiB; an eighth of it for one user. When it is full, the gate records nothing.
    pub mebibytes: Number<16, 1048576>,
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("/var/lib/oz/spool/recordings"),
            mebibytes: Number::new(1024),
        }
    }
}
