//! Declaring a manager, and everything that can be wrong with a declaration.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use oz_runtime::{Clock, Gate, Listen, Recorder, Runtime, SystemClock, Who::Leader};
#[cfg(feature = "metrics")]
use prometheus_client::registry::Registry;

use super::{Declared, Gates, Manager, Observer, RegistrationMode};
use crate::{
    cache::Cached,
    caller::KnownCallers,
    certificate::{CertSource, resolver::Current},
    conversion::Conversion,
    endpoint::Endpoint,
    hook::Hook,
    metrics::Metrics,
    server::{
        Limits,
        conversions::Conversions,
        paths::{Paths, Served},
        reviewer::{CallerTerms, Reviewer},
    },
    task::Task,
    watch::Watcher,
};

/// What is wrong with a declaration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The fingerprint becomes part of many names.
    #[error("failed to use the fingerprint {0:?}: it must be a DNS label of at most 63 characters")]
    Fingerprint(String),
    /// A hook's name becomes part of a path and of a DNS name.
    #[error("failed to use the hook name {0:?}: it must be a DNS label of at most 63 characters")]
    HookName(String),
    /// Two hooks would answer for one path, or two webhooks have one name.
    #[error("failed to declare two hooks with the same {what}: {value}")]
    Duplicate {
        /// `path`, `webhook name` or `watcher`.
        what: &'static str,
        /// What they share.
        value: String,
    },
    /// A path must begin with a slash and hold nothing that needs escaping.
    #[error(
        "failed to use the path {0:?}: it must begin with / and hold only letters, digits and -._/"
    )]
    Path(String),
    /// The API server wants at least three segments.
    #[error(
        "failed to use the webhook name {0:?}: it must be a DNS name of at least three segments"
    )]
    WebhookName(String),
    /// A hook that is called for nothing.
    #[error(
        "failed to declare hook {0}: it has no rule; name a resource, or rules that it follows"
    )]
    NoRules(String),
    /// A hook that is called for nothing.
    #[error("failed to declare hook {0}: it has no operations")]
    NoOperations(String),
    /// Nothing can be changed in an object that goes away.
    #[error(
        "failed to declare hook {0}: a mutating hook cannot be on DELETE; use a validating one"
    )]
    MutatingDelete(String),
    /// The API server allows 1 to 30 s.
    #[error("failed to declare hook {0}: its timeout must be 1 to 30 whole seconds")]
    Timeout(String),
    /// What is converted is the objects of a definition.
    #[error("failed to convert for {0:?}: a CustomResourceDefinition is named <plural>.<group>")]
    Definition(String),
    /// Hooks that nobody can reach.
    #[error("failed to declare hooks without an endpoint: say where the API server reaches them")]
    NoEndpoint,
    /// The endpoint's URL is of no use.
    #[error("failed to use the endpoint: {0}")]
    Endpoint(String),
    /// Port 0 is nowhere.
    #[error("failed to use the endpoint: the port of a Service cannot be 0")]
    Port,
    /// A certificate policy that cannot work.
    #[error("failed to use the certificate policy: {0}")]
    Policy(&'static str),
    /// Certificates of clients that cannot be checked.
    #[error("failed to use the authority of clients: {0}")]
    ClientAuthority(String),
}

/// Adds a task to the runtime, once there is somebody to make its context.
type Start = Box<dyn FnOnce(&mut Runtime, &str, Arc<Reviewer>) + Send + Sync>;

/// Puts a [`Manager`] together.
#[must_use = "nothing happens until build() and then run() or register()"]
pub struct ManagerBuilder {
    pub(super) runtime: Runtime,
    pub(super) fingerprint: String,
    namespace: Option<String>,
    identity: Option<String>,
    listen: Option<Listen>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) certificates: CertSource,
    mode: RegistrationMode,
    pub(super) hooks: Vec<Hook>,
    pub(super) conversions: Vec<Conversion>,
    pub(super) watchers: Vec<Watcher>,
    pub(super) caches: Vec<Cached>,
    tasks: Vec<(String, Start)>,
    limits: Limits,
    drain: Duration,
    observer: Option<Observer>,
    pub(super) client_authority: Option<Vec<u8>>,
    vouches: bool,
    replaces_eirinix: bool,
}

impl std::fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("fingerprint", &self.fingerprint)
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}

impl ManagerBuilder {
    pub(super) fn new(client: kube::Client, fingerprint: &str) -> Self {
        Self {
            runtime: Runtime::new(fingerprint, client, SystemClock),
            fingerprint: fingerprint.to_owned(),
            namespace: None,
            identity: None,
            listen: None,
            endpoint: None,
            certificates: CertSource::default(),
            mode: RegistrationMode::default(),
            hooks: Vec::new(),
            conversions: Vec::new(),
            watchers: Vec::new(),
            caches: Vec::new(),
            tasks: Vec::new(),
            limits: Limits::default(),
            drain: Duration::from_secs(5),
            observer: None,
            client_authority: None,
            vouches: false,
            replaces_eirinix: false,
        }
    }

    /// The address to serve webhooks on; `0.0.0.0:8443` by default. Without hooks, no port is opened.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(Listen::Address(address));
        self
    }

    /// A bound socket to serve webhooks on, in place of [`listen`](Self::listen).
    pub fn listener(mut self, listener: TcpListener) -> Self {
        self.listen = Some(Listen::Bound(listener));
        self
    }

    /// The address for `/healthz`, `/readyz` and `/metrics`, without TLS. Not served by default.
    pub fn listen_plain(mut self, address: SocketAddr) -> Self {
        self.runtime.listen(Listen::Address(address));
        self
    }

    /// A bound socket for the same.
    pub fn plain_listener(mut self, listener: TcpListener) -> Self {
        self.runtime.listen(Listen::Bound(listener));
        self
    }

    /// Where the API server reaches the hooks. Required as soon as there is a hook.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// The manager's own namespace, where its Secret and Lease live. By default that of the
    /// Service, or else that of the client.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Who this replica is in the Lease and in events: the name of the pod, so that a
    /// restarted process takes its own Lease back at once. Random by default.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = Some(identity.to_owned());
        self
    }

    /// Where the serving certificate comes from; signed by itself by default.
    pub fn certificates(mut self, source: CertSource) -> Self {
        self.certificates = source;
        self
    }

    /// The authorities (PEM) that sign the certificates of API servers: nobody else gets past
    /// the handshake. For clusters whose API servers present one to webhooks
    /// (`AdmissionConfiguration`, `kubeConfigFile`); most do not.
    pub fn client_authority(mut self, pem: Vec<u8>) -> Self {
        self.client_authority = Some(pem);
        self
    }

    /// Whether this process looks after the webhook configurations.
    pub fn registration(mut self, mode: RegistrationMode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds a webhook.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Converts the objects of a CustomResourceDefinition between its versions, with the certificates and the
    /// upkeep that hooks have: `spec.conversion` of the definition is written, watched and put right, and
    /// nothing else of it. A definition that does not exist is waited for; readiness does not depend on it.
    pub fn conversion(mut self, conversion: Conversion) -> Self {
        self.conversions.push(conversion);
        self
    }

    /// Adds a watcher. It runs on every replica.
    pub fn watcher(mut self, watcher: Watcher) -> Self {
        self.watchers.push(watcher);
        self
    }

    /// Adds a task. It runs on the leader only; `name` is for logs.
    pub fn task(mut self, name: &str, task: impl Task) -> Self {
        let task = Arc::new(task);
        let start: Start = Box::new(move |runtime, name, reviewer| {
            runtime.service(name, Leader, move |stop| {
                let (task, cx) = (task.clone(), reviewer.cx());
                async move { task.run(&cx, stop).await }
            });
        });
        self.tasks.push((name.to_owned(), start));
        self
    }

    /// Adds a condition of readiness. Keep a clone to open it with.
    pub fn gate(self, gate: Gate) -> Self {
        self.runtime.readiness().add(gate);
        self
    }

    /// Registers metrics of the application's own, served beside the library's. Comes with the feature
    /// `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.runtime.registry());
        self
    }

    /// Handlers vouch for callers ([`Cx::vouch`](crate::Cx::vouch)), so that one for which none did, and which presents
    /// no certificate, is hardly an API server. Its reviews are answered all the same, since it may be a new one. They
    /// have fewer connections and a part of the memory, and what handlers ask the API server for them is bounded:
    /// beyond, [`Cx::client`](crate::Cx) answers with 429.
    pub fn vouches_for_callers(mut self) -> Self {
        self.vouches = true;
        self
    }

    /// What the server puts up with.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long calls are still taken after readiness has failed, for load balancers to
    /// notice; 5 s by default.
    pub fn drain(mut self, grace: Duration) -> Self {
        self.drain = grace;
        self
    }

    /// Is told of upkeep as it happens, such as for a record.
    pub fn observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Removes what an EiriniX install of the same fingerprint has registered, the configuration
    /// `<fingerprint>-mutating-hook`, once the hooks of this one are. It stays if there are webhooks in it
    /// that no EiriniX wrote.
    pub fn replace_eirinix(mut self) -> Self {
        self.replaces_eirinix = true;
        self
    }

    /// Another source of time than the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.runtime.set_clock(clock);
        self
    }

    /// The process that the manager runs in: its stores, and tasks of every replica.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Checks the declaration.
    ///
    /// # Errors
    /// Everything that would only fail later, at the API server or in an outage.
    pub fn build(mut self) -> Result<Manager, ConfigError> {
        let endpoint = self.check()?;
        // Whether supplied certificates come with a key is known when they have been read.
        let paths = Paths::new(Served::Nowhere);
        let namespace = self.namespace.clone().unwrap_or_else(|| match &endpoint {
            Endpoint::Service { namespace, .. } => namespace.clone(),
            Endpoint::Url(_) => self.runtime.client().default_namespace().to_owned(),
        });
        let fingerprint: Arc<str> = self.fingerprint.as_str().into();
        let recorder = Recorder::new(
            self.runtime.client().clone(),
            &self.fingerprint,
            self.identity.as_deref(),
        );
        let metrics = Metrics::new(&mut self.runtime.registry());
        let reviewer = Reviewer::new(
            &self.hooks,
            self.runtime.client().clone(),
            fingerprint.clone(),
            self.runtime.clock().clone(),
            recorder.clone(),
            metrics.clone(),
            &self.limits,
        );
        let conversions = Conversions::new(&self.conversions, &self.limits);
        let reviewer = reviewer.converting(conversions);
        let callers = CallerTerms {
            known: KnownCallers::default(),
            confined: self.vouches,
        };
        let reviewer = Arc::new(reviewer.telling_apart(callers.clone()));
        let readiness = self.runtime.readiness().clone();
        // A process that only watches or reconciles has no port and no certificate to wait for.
        let serves = !self.hooks.is_empty() || !self.conversions.is_empty();
        let gates = serves.then(|| Gates {
            serving: readiness.gate("serving"),
            certificate: readiness.gate("certificate"),
            registration: readiness.gate("registration"),
        });
        let watchers = self.watchers.into_iter().map(|watcher| {
            let gate = readiness.gate(format!("watch {}", watcher.name()));
            (watcher, gate)
        });
        let competes = !self.tasks.is_empty();
        for (name, start) in self.tasks {
            start(&mut self.runtime, &name, reviewer.clone());
        }
        Ok(Manager {
            watchers: watchers.collect(),
            caches: self.caches,
            declared: Arc::new(Declared {
                fingerprint,
                namespace,
                identity: self.identity,
                endpoint,
                certificates: self.certificates,
                mode: self.mode,
                hooks: self.hooks,
                conversions: self.conversions,
                limits: self.limits,
                drain: self.drain,
            }),
            runtime: self.runtime,
            recorder,
            reviewer,
            metrics,
            gates,
            current: Current::default(),
            paths,
            callers: callers.known,
            client_authority: self.client_authority,
            observer: self.observer,
            replaces_eirinix: self.replaces_eirinix,
            competes,
            listen: self.listen,
        })
    }
}
