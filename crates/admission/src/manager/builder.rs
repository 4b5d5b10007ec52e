//! The declaration of a manager, and the errors of a declaration.

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
    certificate::{AuthorityError, CertSource, resolver::Current},
    conversion::Conversion,
    endpoint::{Endpoint, EndpointError},
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

/// An error of a declaration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The fingerprint is not a DNS label; it becomes part of many names.
    #[error("failed to use the fingerprint {0:?}: it must be a DNS label of at most 63 characters")]
    Fingerprint(String),
    /// The name of a hook is not a DNS label; it becomes part of a path and of a DNS name.
    #[error("failed to use the hook name {0:?}: it must be a DNS label of at most 63 characters")]
    HookName(String),
    /// Two hooks have the same path, or two webhooks have the same name.
    #[error("failed to declare two hooks with the same {what}: {value}")]
    Duplicate {
        /// The kind of the value: `path`, `webhook name` or `watcher`.
        what: &'static str,
        /// The shared value.
        value: String,
    },
    /// A path does not begin with a slash, or contains characters that require escaping.
    #[error(
        "failed to use the path {0:?}: it must begin with / and hold only letters, digits and -._/"
    )]
    Path(String),
    /// A webhook name has fewer than three segments, which the API server requires.
    #[error(
        "failed to use the webhook name {0:?}: it must be a DNS name of at least three segments"
    )]
    WebhookName(String),
    /// A hook has no rules, so it is never called.
    #[error(
        "failed to declare hook {0}: it has no rule; name a resource, or rules that it follows"
    )]
    NoRules(String),
    /// A hook has no operations, so it is never called.
    #[error("failed to declare hook {0}: it has no operations")]
    NoOperations(String),
    /// A mutating hook is on DELETE, but an object that is being deleted cannot be changed.
    #[error(
        "failed to declare hook {0}: a mutating hook cannot be on DELETE; use a validating one"
    )]
    MutatingDelete(String),
    /// A timeout is outside the range of the API server, 1 to 30 s.
    #[error("failed to declare hook {0}: its timeout must be 1 to 30 whole seconds")]
    Timeout(String),
    /// The name of a conversion is not the name of a CustomResourceDefinition.
    #[error("failed to convert for {0:?}: a CustomResourceDefinition is named <plural>.<group>")]
    Definition(String),
    /// The hooks have no endpoint, so the API server cannot reach them.
    #[error("failed to declare hooks without an endpoint: say where the API server reaches them")]
    NoEndpoint,
    /// The URL of the endpoint is invalid.
    #[error("failed to use the endpoint: {0}")]
    Endpoint(EndpointError),
    /// The port of the Service is 0.
    #[error("failed to use the endpoint: the port of a Service cannot be 0")]
    Port,
    /// The certificate policy is invalid.
    #[error("failed to use the certificate policy: {0}")]
    Policy(&'static str),
    /// The authority for client certificates is invalid.
    #[error("failed to use the authority of clients: {0}")]
    ClientAuthority(AuthorityError),
}

/// A function that adds a task to the runtime, once the reviewer that creates its context exists.
type Start = Box<dyn FnOnce(&mut Runtime, &str, Arc<Reviewer>) + Send + Sync>;

/// A builder of a [`Manager`].
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

    /// Sets the address of the webhook server; `0.0.0.0:8443` by default. Without hooks, no port is opened.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(Listen::Address(address));
        self
    }

    /// Sets a bound socket for the webhook server; it replaces [`listen`](Self::listen).
    pub fn listener(mut self, listener: TcpListener) -> Self {
        self.listen = Some(Listen::Bound(listener));
        self
    }

    /// Sets the address for `/healthz`, `/readyz` and `/metrics`, without TLS. Not served by default.
    pub fn listen_plain(mut self, address: SocketAddr) -> Self {
        self.runtime.listen(Listen::Address(address));
        self
    }

    /// Sets a bound socket for `/healthz`, `/readyz` and `/metrics`, without TLS.
    pub fn plain_listener(mut self, listener: TcpListener) -> Self {
        self.runtime.listen(Listen::Bound(listener));
        self
    }

    /// Sets the address of the hooks for the API server. Required as soon as there is a hook.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Sets the manager's namespace, which contains its Secret and Lease. By default the namespace of the
    /// Service, or else that of the client.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Sets the identity of this replica in the Lease and in events: the name of the pod, so that a
    /// restarted process regains its own Lease at once. Random by default.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = Some(identity.to_owned());
        self
    }

    /// Sets the source of the serving certificate; self-signed by default.
    pub fn certificates(mut self, source: CertSource) -> Self {
        self.certificates = source;
        self
    }

    /// Sets the authorities (PEM) that sign the certificates of API servers: other clients fail the
    /// handshake. For clusters with API servers that present a certificate to webhooks
    /// (`AdmissionConfiguration`, `kubeConfigFile`); most do not.
    pub fn client_authority(mut self, pem: Vec<u8>) -> Self {
        self.client_authority = Some(pem);
        self
    }

    /// Sets whether this process maintains the webhook configurations.
    pub fn registration(mut self, mode: RegistrationMode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds a webhook.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Converts the objects of a CustomResourceDefinition between its versions, with the same certificates
    /// and upkeep as hooks: the manager writes, watches and repairs `spec.conversion` of the definition,
    /// and no other field. The manager waits for a definition that does not exist; readiness does not
    /// depend on it.
    pub fn conversion(mut self, conversion: Conversion) -> Self {
        self.conversions.push(conversion);
        self
    }

    /// Adds a watcher, which runs on every replica.
    pub fn watcher(mut self, watcher: Watcher) -> Self {
        self.watchers.push(watcher);
        self
    }

    /// Adds a task, which runs on the leader only; `name` is for logs.
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

    /// Adds a readiness gate. Keep a clone to open it.
    pub fn gate(self, gate: Gate) -> Self {
        self.runtime.readiness().add(gate);
        self
    }

    /// Registers metrics of the application, which are served with those of the library. Requires the
    /// feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.runtime.registry());
        self
    }

    /// Declares that handlers vouch for callers ([`Cx::vouch`](crate::Cx::vouch)). A caller for which no
    /// handler vouched and which presents no certificate is then probably not an API server. The server
    /// still reviews its requests, since it may be a new API server. Such callers have fewer connections
    /// and a part of the memory, and the calls that handlers make to the API server for them are limited:
    /// beyond the limit, [`Cx::client`](crate::Cx) responds with 429.
    pub fn vouches_for_callers(mut self) -> Self {
        self.vouches = true;
        self
    }

    /// Sets the limits of the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the time for which the server still accepts calls after readiness has failed, so that load
    /// balancers notice; 5 s by default.
    pub fn drain(mut self, grace: Duration) -> Self {
        self.drain = grace;
        self
    }

    /// Sets the observer of upkeep, for instance for audit records.
    pub fn observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Removes the registration of an EiriniX installation of the same fingerprint, the configuration
    /// `<fingerprint>-mutating-hook`, once the hooks of this manager are registered. The configuration
    /// stays if it contains webhooks that EiriniX did not write.
    pub fn replace_eirinix(mut self) -> Self {
        self.replaces_eirinix = true;
        self
    }

    /// Sets a clock that replaces the system clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.runtime.set_clock(clock);
        self
    }

    /// Returns the runtime of the manager: its stores, and tasks of every replica.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Checks the declaration and builds the manager.
    ///
    /// # Errors
    /// All errors of the declaration that would otherwise appear later, at the API server or in an outage.
    pub fn build(mut self) -> Result<Manager, ConfigError> {
        let endpoint = self.check()?;
        // A supplied certificate must be read before it is known whether it has a key.
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
        // A process that only watches or reconciles requires neither port nor certificate.
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
