//! The manager: all parts of an extension process.

mod budget;
mod builder;
mod caches;
mod check;
mod error;
mod rbac;
mod register;
mod report;
mod run;
mod upkeep;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use axum::Router;
use oz_runtime::{Clock, Gate, Listen, Recorder, Runtime};

pub use builder::{ConfigError, ManagerBuilder};
pub use error::UpkeepError;
pub use register::{Registration, configurations};
pub use report::{Observer, Upkeep};
pub use run::Error;

use crate::{
    cache::Cached,
    caller::{Caller, KnownCallers},
    certificate::{CertSource, resolver::Current},
    conversion::Conversion,
    endpoint::Endpoint,
    hook::Hook,
    metrics::Metrics,
    server::{
        Limits,
        paths::{Paths, Served},
        reviewer::{Reply, Reviewer},
        router::router,
    },
    watch::Watcher,
};

/// The registration mode: defines whether this process maintains the webhook configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationMode {
    /// The process writes, watches and repairs the configurations.
    #[default]
    Maintain,
    /// The process only serves; another process calls [`Manager::register`], or an administrator applies
    /// manifests.
    Never,
}

/// The declaration of a built manager, which does not change.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) fingerprint: Arc<str>,
    pub(crate) namespace: String,
    pub(crate) identity: Option<String>,
    pub(crate) endpoint: Endpoint,
    pub(crate) certificates: CertSource,
    pub(crate) mode: RegistrationMode,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) conversions: Vec<Conversion>,
    pub(crate) limits: Limits,
    pub(crate) drain: Duration,
}

impl Declared {
    /// Checks whether the API server calls any webhook of the process.
    pub(crate) fn serves(&self) -> bool {
        !self.hooks.is_empty() || !self.conversions.is_empty()
    }
}

/// The readiness gates of the library. They exist, closed, before any part runs.
#[derive(Clone, Debug)]
pub(crate) struct Gates {
    pub(crate) serving: Gate,
    pub(crate) certificate: Gate,
    pub(crate) registration: Gate,
}

/// An extension process: hooks, watchers and tasks, the server for them, and the upkeep of certificates and
/// registration.
///
/// [`Manager::builder`] creates it; see the [crate's documentation](crate).
pub struct Manager {
    pub(crate) declared: Arc<Declared>,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: Recorder,
    pub(crate) reviewer: Arc<Reviewer>,
    pub(crate) metrics: Metrics,
    /// `None` without hooks and conversions: then nothing is served or registered, and no Secret is
    /// required.
    pub(crate) gates: Option<Gates>,
    pub(crate) current: Current,
    pub(crate) paths: Paths,
    pub(crate) callers: KnownCallers,
    pub(crate) client_authority: Option<Vec<u8>>,
    pub(crate) watchers: Vec<(Watcher, Gate)>,
    pub(crate) caches: Vec<Cached>,
    /// True if there are tasks for the leader.
    pub(crate) competes: bool,
    pub(crate) observer: Option<Observer>,
    pub(crate) replaces_eirinix: bool,
    pub(crate) listen: Option<Listen>,
}

impl Manager {
    /// Creates a builder. `fingerprint` is the name of the product: a DNS label that prefixes all objects
    /// that the manager creates in the cluster, is the field manager of every write, and separates two
    /// products.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use oz_admission::{ConfigError, Hook, Manager, Notes, Review, testing, validate_fn};
    ///
    /// let (client, _) = testing::client();
    /// let fine = validate_fn(|_, _: &Review<Pod>| Ok(Notes::none()));
    /// let wrong = Manager::builder(client, "acme").hook(Hook::validating("fine", fine)).build();
    /// assert_eq!(wrong.unwrap_err(), ConfigError::NoEndpoint);
    /// # }
    /// ```
    pub fn builder(client: kube::Client, fingerprint: &str) -> ManagerBuilder {
        ManagerBuilder::new(client, fingerprint)
    }

    pub(crate) fn client(&self) -> &kube::Client {
        self.runtime.client()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.runtime.clock()
    }

    /// Returns the hooks as an HTTP service under their own paths, without sockets, TLS, a key in the paths
    /// or limits on connections.
    pub fn router(&self) -> Router {
        self.router_at(Paths::new(Served::Plain))
    }

    pub(crate) fn router_at(&self, paths: Paths) -> Router {
        router(self.reviewer.clone(), paths, &self.declared.limits)
    }

    /// Returns `/healthz`, `/readyz` and `/metrics` as an HTTP service.
    pub fn plain_router(&self) -> Router {
        self.runtime.probes()
    }

    /// Answers one call: the path and the bytes of an `AdmissionReview`, or of a `ConversionReview`.
    pub async fn review(&self, path: &str, body: &[u8]) -> Reply {
        let arrival = self.reviewer.arrival(path);
        self.reviewer
            .review(path, body, Caller::Local, arrival)
            .await
    }

    /// Answers one call as if it arrived over a connection from this address.
    pub(crate) async fn review_from(&self, address: IpAddr, path: &str, body: &[u8]) -> Reply {
        let caller = self.reviewer.caller(address, false);
        let arrival = self.reviewer.arrival(path);
        self.reviewer.review(path, body, caller, arrival).await
    }

    /// Returns the webhook configurations that will be registered, without certificates and without the key
    /// in their paths: for manifests, reviews and tests. See also
    /// [`configurations`](crate::configurations()), which requires no client.
    pub fn configurations(&self) -> Vec<serde_json::Value> {
        register::manifests(&self.declared)
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("declared", &self.declared)
            .finish_non_exhaustive()
    }
}
