//! The options for a bucket.

use std::path::{Path, PathBuf};

use oz_config::Recordings;
use oz_outbound::{Proxies, Roots};

/// The options for a bucket and its server.
#[derive(Clone, Debug, Default)]
pub(crate) struct S3Options {
    /// Server of the bucket, as a URL; Amazon's of the region by default.
    pub(super) endpoint: Option<String>,
    /// Region of the bucket.
    pub(super) region: String,
    /// Put the bucket into the path of URLs, not into their host.
    pub(super) path_style: bool,
    /// Directory with the files access-key-id and secret-access-key, and session-token if there is one.
    pub(super) credentials: Option<PathBuf>,
    /// Role for the credentials.
    pub(super) web_identity: WebIdentityOptions,
    /// Trust in both servers, and the way to them.
    pub(super) connection: ConnectionOptions,
    /// Number of days for which no user can delete stored recordings.
    pub(super) retention: Option<u64>,
    /// Store objects without If-None-Match, for a server that does not implement it.
    pub(super) unconditional_writes: bool,
}

/// The options for credentials of a role.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebIdentityOptions {
    /// The role.
    pub(super) role: Option<String>,
    /// File with the token that is exchanged for the credentials of the role.
    pub(super) token: Option<PathBuf>,
    /// Server that exchanges tokens for credentials, as a URL; Amazon's of the region by default.
    pub(super) endpoint: Option<String>,
}

/// The trust in a server, and the way to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// Certificate authorities that verify the server.
    pub(super) roots: Roots,
    /// Proxies through which the server is reached.
    pub(super) proxies: Proxies,
}

impl S3Options {
    /// Returns the options in a configuration, with Secrets in a directory. A role replaces the keys of the Secret.
    pub(crate) fn new(recordings: &Recordings, secrets: &Path, proxies: &Proxies) -> Self {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let identity = &recordings.web_identity;
        let role = given(&identity.role);
        Self {
            endpoint: given(&recordings.endpoint),
            region: recordings.region.clone(),
            path_style: recordings.path_style,
            credentials: (role.is_none() && !recordings.secret.name.is_empty())
                .then(|| recordings.credentials(secrets)),
            web_identity: WebIdentityOptions {
                token: role.is_some().then(|| recordings.token_file(secrets)),
                role,
                endpoint: given(&identity.endpoint),
            },
            connection: ConnectionOptions {
                roots: Roots::new(recordings.public_roots, recordings.ca_file(secrets)),
                proxies: proxies.clone(),
            },
            retention: Some(recordings.retention_days.get()).filter(|days| *days > 0),
            unconditional_writes: !recordings.s3.conditional_writes,
        }
    }

    pub(super) fn endpoint(&self) -> String {
        let amazon = || format!("https://s3.{}.amazonaws.com", self.region);
        self.endpoint.clone().unwrap_or_else(amazon)
    }

    pub(super) fn sts_endpoint(&self) -> String {
        let amazon = || format!("https://sts.{}.amazonaws.com/", self.region);
        self.web_identity.endpoint.clone().unwrap_or_else(amazon)
    }
}
