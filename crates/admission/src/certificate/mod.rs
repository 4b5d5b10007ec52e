//! Certificates: their sources, their renewal, and the replacement of an old one by a new one without a
//! failed call.

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

pub use client::{AuthorityError, ClientAuthority, ClientCertificate, UnprovenClient};
pub use rotation::{Reason, needs_rotation};

/// The source of the serving certificate.
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
    /// The manager's own authority. The key is in a Secret that all replicas share; serving certificates
    /// are short-lived and never leave memory.
    SelfSigned(CertPolicy),
    /// A Secret that another component maintains, such as cert-manager: `tls.crt`, `tls.key` and, for the
    /// registration, `ca.crt`. The manager watches it, and applies each change. With an additional
    /// `path-key` of 32 random bytes, hooks are served behind a key in their paths, as they are with the
    /// manager's own authority; without it, to every client that reaches the port. To replace it, put the
    /// new key into `path-key-next` first, then into `path-key`, and the old key into `path-key-previous`.
    Secret {
        /// The name of the Secret, in the manager's namespace.
        name: String,
    },
    /// Files that another component maintains: `tls.crt`, `tls.key` and, for the registration, `ca.crt`;
    /// and `path-key`, as in a Secret. The manager reads them again every few seconds.
    Files {
        /// The directory of the files.
        dir: PathBuf,
    },
}

impl Default for CertSource {
    fn default() -> Self {
        Self::SelfSigned(CertPolicy::default())
    }
}

/// The lifetimes of the certificates and keys that the manager creates.
#[derive(Clone, Debug, PartialEq)]
pub struct CertPolicy {
    /// The name of the Secret that holds the authority; `<fingerprint>-admission-ca` by default.
    pub secret: Option<String>,
    /// The lifetime of a serving certificate. A day by default.
    pub leaf_life: Duration,
    /// The lifetime of an authority. 180 days by default.
    pub ca_life: Duration,
    /// The part of a lifetime after which a certificate is renewed: ⅔ by default.
    pub renew_at: f64,
    /// The time for which a new authority must have been published before it signs. It covers the delay
    /// with which API servers notice the change; 10 s by default.
    pub settle: Duration,
    /// The time for which an old authority stays published after the new one has taken over: the maximum
    /// delay of a replica. 10 minutes by default.
    pub overlap: Duration,
    /// The maximum lifetime of the key in the paths of hooks: a new key takes over after that time, and
    /// after every start of a process that registers. The preceding key stays valid for
    /// [`overlap`](Self::overlap). An hour by default.
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
    /// Returns the name of the Secret of the product `fingerprint`.
    pub(crate) fn secret_name(&self, fingerprint: &str) -> String {
        let name = self.secret.clone();
        name.unwrap_or_else(|| format!("{fingerprint}-admission-ca"))
    }

    /// Returns the instant of the renewal for a lifetime from `from` until `until`.
    pub(crate) fn renewal(&self, from: jiff::Timestamp, until: jiff::Timestamp) -> jiff::Timestamp {
        let life = until.duration_since(from).as_secs_f64();
        let part = jiff::SignedDuration::from_secs_f64(life * self.renew_at);
        from.checked_add(part).unwrap_or(until)
    }
}
