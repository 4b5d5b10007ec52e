//! Keeping certificate and registration as they should be.
//!
//! One pass looks at the Secret and at the configurations, does what is due, and says
//! when to come back; passes run at start, whenever one of these objects is touched, and
//! when time asks for it. The order inside a pass is what makes rotation safe:
//! an authority is published first, and signs second.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use oz_runtime::{Clock, Selection};

use super::{
    Declared, Gates, Manager, RegistrationMode,
    budget::Budget,
    register::{desired, labelled},
    report::Report,
};
use crate::{
    certificate::{
        CertPolicy, CertSource, authority,
        authority::{Authority, Leaf},
        resolver::Current,
        rotation::after,
        secret::{SecretAddress, Stored, certificates},
        store::{self, Circumstances, Store},
        supplied::{self, Supplied},
    },
    registration::{
        apply::{self, Registrar},
        origin::{Precedence, Writer},
    },
    server::paths::{Paths, Served},
};

/// How often supplied files are looked at.
const FILES_EVERY: Duration = Duration::from_secs(5);

/// Why certificate or registration are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The authority.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] authority::Error),
    /// The registration.
    #[error(transparent)]
    Registration(#[from] apply::Error),
    /// The supplied Secret.
    #[error("failed to read Secret {namespace}/{name}: {source}")]
    Supplied {
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}

enum Source {
    SelfSigned {
        store: Box<Store>,
        policy: CertPolicy,
    },
    Secret {
        api: Api<Secret>,
        name: String,
    },
    Files {
        directory: PathBuf,
    },
}

/// What of a registration changes while a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trusted {
    bundle: Option<String>,
    segment: Option<String>,
}

/// Looks after certificate and registration.
pub(super) struct Upkeep {
    declared: Arc<Declared>,
    publish: bool,
    source: Source,
    registrar: Registrar,
    current: Current,
    paths: Paths,
    clock: Arc<dyn Clock>,
    report: Report,
    gates: Option<Gates>,
    /// Since when a certificate is known to be in every configuration.
    published: BTreeMap<String, Timestamp>,
    /// What was last registered: a difference from it is damage, not a change of ours.
    registered: Option<Trusted>,
    repairs: Budget,
}

impl Upkeep {
    pub(super) fn new(manager: &Manager, publish: bool, gates: Option<Gates>) -> Self {
        let declared = manager.declared.clone();
        let client = manager.client().clone();
        let source = match &declared.certificates {
            CertSource::SelfSigned(policy) => {
                let home = home(&declared, policy);
                let store = Store::new(
                    client.clone(),
                    home,
                    policy.clone(),
                    manager.metrics.clone(),
                );
                Source::SelfSigned {
                    store: Box::new(store),
                    policy: policy.clone(),
                }
            }
            CertSource::Secret { name } => Source::Secret {
                api: Api::namespaced(client.clone(), &declared.namespace),
                name: name.clone(),
            },
            CertSource::Files { dir } => Source::Files {
                directory: dir.clone(),
            },
        };
        let names = declared
            .hooks
            .iter()
            .map(|hook| hook.registered_name(&declared.fingerprint));
        let precedence = Precedence::new(Writer {
            since: manager.clock().now(),
            identity: declared.identity.clone().unwrap_or_default(),
        });
        Self {
            registrar: Registrar::new(client, &declared.fingerprint, names.collect(), precedence),
            declared,
            publish,
            source,
            current: manager.current.clone(),
            paths: manager.paths.clone(),
            clock: manager.clock().clone(),
            report: Report::new(manager),
            gates,
            published: BTreeMap::new(),
            registered: None,
            repairs: Budget::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_self_signed(&self) -> bool {
        matches!(self.source, Source::SelfSigned { .. })
    }

    /// Does what is due. Returns the instant at which to come back if nothing happens before.
    pub(super) async fn pass(&mut self) -> Result<Timestamp, UpkeepError> {
        let now = self.now();
        let wake = if self.is_self_signed() {
            let (stored, wake) = match self.authority(now).await {
                Ok(found) => found,
                Err(error) => {
                    // Whatever keeps us from the Secret must not end a good leaf as well.
                    let held = self.held();
                    held.map_or(Ok(()), |held| self.renew(&held, now))?;
                    return Err(error);
                }
            };
            self.renew(&stored.active, now)?;
            let bundle: String = stored.trusted().collect();
            self.publish(now, Some(bundle)).await?;
            let follow = self.follow(&stored, now)?;
            earliest([wake, follow, self.promotion(&stored)])
        } else {
            let supplied = self.supplied(now).await?;
            self.publish(now, supplied.bundle).await?;
            Some(after(now, FILES_EVERY))
        };
        if let Some(leaf) = self.current.leaf() {
            self.report.expiry("leaf", leaf.until, now);
        }
        // Clocks are stepped and timers are not: look at the time every so often.
        Ok(wake
            .unwrap_or(Timestamp::MAX)
            .min(after(now, Duration::from_secs(60))))
    }

    /// What the Secret says after every step that is due.
    pub(super) async fn authority(
        &mut self,
        now: Timestamp,
    ) -> Result<(Stored, Option<Timestamp>), UpkeepError> {
        let leaf = self.current.leaf();
        let published = &self.published;
        let circumstances = Circumstances {
            now,
            // An authority that has ended is trusted by nobody, published or not.
            serving: leaf
                .as_ref()
                .filter(|leaf| now < leaf.until)
                .and_then(|leaf| leaf.issuer.as_deref()),
            published_since: &|pem| published.get(pem).copied(),
            may_stage: self.publish,
        };
        let Source::SelfSigned { store, .. } = &mut self.source else {
            // Only called for sources of our own.
            return Err(authority::Error::NotAuthority.into());
        };
        let (stored, wake) = store.settle(&circumstances).await?;
        self.report.expiry("ca", stored.active.until, now);
        self.paths
            .serve(stored.paths.clone().map_or(Served::Plain, Served::Keyed));
        let certificate = &stored.active.certificate;
        self.report.authority(certificate, stored.active.until);
        Ok((stored, wake))
    }

    fn sign(&self, authority: &Authority, now: Timestamp) -> Result<(), UpkeepError> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return Ok(());
        };
        let names = self.declared.endpoint.certificate_names();
        let leaf = authority.sign(&names, now, policy.leaf_life)?;
        tracing::info!(until = %leaf.until, "signed a serving certificate");
        self.take(leaf);
        Ok(())
    }

    /// The authority last found in the Secret.
    fn held(&self) -> Option<Arc<Authority>> {
        match &self.source {
            Source::SelfSigned { store, .. } => store.held(),
            _ => None,
        }
    }

    fn take(&self, leaf: Leaf) {
        self.current.swap(leaf);
        if let Some(gates) = &self.gates {
            gates.certificate.open();
        }
    }

    /// Signs the first leaf, and a new one before it ends, as long as the authority is the same.
    fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), UpkeepError> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return Ok(());
        };
        let due = self.current.leaf().is_none_or(|leaf| {
            let same = leaf.issuer.as_ref() == Some(&authority.certificate);
            // A leaf that has ended convinces nobody: there is nothing to lose by another one.
            now >= leaf.until || (same && now >= policy.renewal(leaf.from, leaf.until))
        });
        if due {
            self.sign(authority, now)
        } else {
            Ok(())
        }
    }

    /// Signs with an authority that has taken over, once clients will trust it. Returns when
    /// to look at the leaf again.
    fn follow(&self, stored: &Stored, now: Timestamp) -> Result<Option<Timestamp>, UpkeepError> {
        let (Source::SelfSigned { policy, .. }, Some(leaf)) = (&self.source, self.current.leaf())
        else {
            return Ok(None);
        };
        let active = &stored.active.certificate;
        if leaf.issuer.as_ref() != Some(active) {
            // If nobody can tell, whoever promoted it has waited in our place.
            let unknown = stored.promoted_at.unwrap_or(now);
            let since = self.published.get(active);
            let trusted = since.map_or(unknown, |since| after(*since, policy.settle));
            if now < trusted {
                return Ok(Some(trusted));
            }
            self.sign(&stored.active, now)?;
        }
        let leaf = self.current.leaf();
        Ok(leaf.map(|leaf| policy.renewal(leaf.from, leaf.until)))
    }

    /// When a staged authority will have been published for long enough.
    pub(super) fn promotion(&self, stored: &Stored) -> Option<Timestamp> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return None;
        };
        let next = stored.next.as_ref()?;
        let since = self.published.get(&next.certificate)?;
        Some(after(*since, policy.settle))
    }

    /// Loads what somebody else supplies. A bad one does not take the place of a good one.
    pub(super) async fn supplied(&self, now: Timestamp) -> Result<Supplied, UpkeepError> {
        let supplied = match &self.source {
            Source::Secret { api, name } => {
                let secret = api
                    .get(name)
                    .await
                    .map_err(|source| UpkeepError::Supplied {
                        namespace: self.declared.namespace.clone(),
                        name: name.clone(),
                        source: Box::new(source),
                    })?;
                supplied::from_secret(&secret)?
            }
            Source::Files { directory } => supplied::from_files(directory).await?,
            Source::SelfSigned { .. } => return Err(authority::Error::NotAuthority.into()),
        };
        let names = self.declared.endpoint.certificate_names();
        supplied::check(&supplied, names.first().map(String::as_str), now)?;
        // Before the certificate: the first handshake is followed by a call.
        self.paths
            .serve(supplied.paths.clone().map_or(Served::Plain, Served::Keyed));
        let same = self
            .current
            .leaf()
            .is_some_and(|leaf| leaf.key.cert == supplied.leaf.key.cert);
        if !same {
            tracing::info!(until = %supplied.leaf.until, "took up a supplied certificate");
            self.take(supplied.leaf.clone());
        }
        Ok(supplied)
    }

    /// Registers `bundle`, or, if that is not for us to do, finds out what is registered.
    pub(super) async fn publish(
        &mut self,
        now: Timestamp,
        bundle: Option<String>,
    ) -> Result<(), UpkeepError> {
        let trusted = Trusted {
            bundle: bundle.clone(),
            segment: self.paths.segment(),
        };
        let bundles = if self.publish && self.register(trusted).await? {
            vec![bundle.unwrap_or_default()]
        } else {
            // Serving alone needs no right to read configurations.
            self.registrar.published().await.unwrap_or_default()
        };
        if let Some(gates) = &self.gates {
            gates.registration.open();
        }
        let everywhere = |pem: &String| bundles.iter().all(|bundle| bundle.contains(pem.as_str()));
        let mut known: Vec<_> = bundles
            .first()
            .map(|it| certificates(it))
            .unwrap_or_default();
        known.retain(everywhere);
        self.published.retain(|pem, _| known.contains(pem));
        for pem in known {
            self.published.entry(pem).or_insert(now);
        }
        Ok(())
    }

    /// Whether all is registered as this replica has it; else as one that started later has it.
    async fn register(&mut self, trusted: Trusted) -> Result<bool, UpkeepError> {
        let (bundle, segment) = (trusted.bundle.as_deref(), trusted.segment.as_deref());
        let desired = desired(&self.declared, bundle, segment);
        let first = self.registered.is_none();
        // The key of the authority, which no one has but replicas, and all of them.
        let held = self.held();
        let key = held.as_ref().map(|held| held.key.as_bytes());
        let order = self.registrar.ensure(&desired, key).await?;
        if self.registered.as_ref() == Some(&trusted) {
            for change in order.changes {
                self.repairs.spend(std::time::Instant::now());
                if change.replaced {
                    self.report.replaced(&change);
                } else {
                    self.report.repaired(&change).await;
                }
            }
        }
        if first {
            self.registrar.prune(&desired).await?;
            self.registrar
                .label_namespaces(&labelled(&self.declared))
                .await?;
        }
        self.registered = Some(trusted);
        Ok(!order.left)
    }

    /// How long to leave the registration alone, however much happens to it.
    pub(super) fn pause(&mut self) -> Duration {
        self.repairs.pause(std::time::Instant::now())
    }

    /// Everything whose change calls for a pass.
    pub(super) fn touched(
        &self,
        client: &kube::Client,
    ) -> futures::stream::SelectAll<futures::stream::BoxStream<'static, ()>> {
        use futures::StreamExt;
        let mut streams = futures::stream::SelectAll::new();
        let secret = match &self.source {
            Source::SelfSigned { policy, .. } => Some(home(&self.declared, policy).name),
            Source::Secret { name, .. } => Some(name.clone()),
            Source::Files { .. } => None,
        };
        if let Some(name) = secret {
            let namespace = Some(self.declared.namespace.as_str());
            let this = Selection::default().fields(&format!("metadata.name={name}"));
            streams.push(crate::watch::touched::<Secret>(client, namespace, this).boxed());
        }
        if self.publish {
            streams.push(self.registrar.changes().boxed());
        }
        streams
    }
}

fn home(declared: &Declared, policy: &CertPolicy) -> SecretAddress {
    let name = policy.secret.clone();
    SecretAddress {
        name: name.unwrap_or_else(|| format!("{}-admission-ca", declared.fingerprint)),
        namespace: declared.namespace.clone(),
        fingerprint: declared.fingerprint.to_string(),
    }
}

fn earliest(instants: [Option<Timestamp>; 3]) -> Option<Timestamp> {
    instants.into_iter().flatten().min()
}

/// Whether this process writes configurations.
pub(super) fn publishes(mode: RegistrationMode) -> bool {
    mode == RegistrationMode::Maintain
}
