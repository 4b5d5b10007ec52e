//! Certificates: where they come from, when they are renewed, and how a new one takes
//! the place of an old one without a failed call.

pub(crate) mod authority;
pub(crate) mod client;
pub(crate) mod resolver;
pub(crate) mod rotation;
pub(crate) mod secret;
pub(crate) mod shared;
pub(crate) mod signer;
pub(crate) mod store;
pub(crate) mod supplied;

use std::{path::PathBuf, time::Duration};

pub use client::{ClientAuthority, ClientCertificate};
pub use rotation::{Reason, needs_rotation};

/// Where the serving certificate comes from.
///
/// ```
/// use std::time::Duration;
///
/// use oz_admission::{CertPolicy, CertSource};
///
/// // The manager's own authority, with certificates that last for an hour.
/// let own = CertSource::SelfSigned(CertPolicy {
///     leaf_life: Duration::from_secs(60 * 60),
///     ..CertPolicy::default()
/// });
/// // What cert-manager puts there.
/// let supplied = CertSource::Secret { name: "hooks-tls".into() };
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CertSource {
    /// The manager is its own authority. Its key lies in a Secret that all replicas share;
    /// serving certificates are short-lived and never leave memory.
    SelfSigned(CertPolicy),
    /// A Secret kept by someone else, such as cert-manager: `tls.crt`, `tls.key` and,
    /// for the registration, `ca.crt`. Watched, and taken up when it changes. With a `path-key`
    /// of 32 random bytes beside them, hooks are served behind a key in their paths, as they are
    /// with an authority of the manager's own; without, to anybody who reaches the port. To
    /// exchange it, put the new one into `path-key-next` first, then into `path-key`, and
    /// the old one into `path-key-previous`.
    Secret {
        /// Its name, in the manager's namespace.
        name: String,
    },
    /// Files kept by someone else: `tls.crt`, `tls.key` and, for the registration, `ca.crt`;
    /// and `path-key`, as in a Secret. Read again every few seconds.
    Files {
        /// The directory they are in.
        dir: PathBuf,
    },
}

impl Default for CertSource {
    fn default() -> Self {
        Self::SelfSigned(CertPolicy::default())
    }
}

/// How long things live that the manager signs itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CertPolicy {
    /// The name of the Secret that holds the authority; `<fingerprint>-admission-ca` by default.
    pub secret: Option<String>,
    /// How long a serving certificate lives. A day by default.
    pub leaf_life: Duration,
    /// How long an authority lives. 180 days by default.
    pub ca_life: Duration,
    /// At which part of its life something is renewed: ⅔ by default.
    pub renew_at: f64,
    /// How long a new authority must have been published before anything is signed with it.
    /// Covers the time that API servers take to notice; 10 s by default.
    pub settle: Duration,
    /// How long an old authority stays published after the new one has taken over: as long
    /// as a replica may take to follow. 10 minutes by default.
    pub overlap: Duration,
    /// How long the key in the paths of hooks is used, at most: another one takes over after that long, and after every
    /// start of a process that registers. The one before is good for [`overlap`](Self::overlap). An hour by default.
    pub path_life: Duration,
}

impl Default for CertPolicy {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            secret: None,
            leaf_life: Duration::from_secs(DAY),
            ca_life: Duration::from_secs(180 * DAY),
            renew_at: 2.0 / 3.0,
            settle: Duration::from_secs(10),
            overlap: Duration::from_secs(600),
            path_life: Duration::from_secs(60 * 60),
        }
    }
}

impl CertPolicy {
    /// The name of the Secret of the product `fingerprint`.
    pub(crate) fn secret_name(&self, fingerprint: &str) -> String {
        let name = self.secret.clone();
        name.unwrap_or_else(|| format!("{fingerprint}-admission-ca"))
    }

    /// When something that lives from `from` until `until` is to be renewed.
    pub(crate) fn renewal(&self, from: jiff::Timestamp, until: jiff::Timestamp) -> jiff::Timestamp {
        let life = until.duration_since(from).as_secs_f64();
        let part = jiff::SignedDuration::from_secs_f64(life * self.renew_at);
        from.checked_add(part).unwrap_or(until)
    }
}
