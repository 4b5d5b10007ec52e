//! Keeping certificate and registration as they should be.
//!
//! One pass looks at the Secret and at the configurations, does what is due, and says
//! when to come back; passes run at start, whenever one of these objects is touched, and
//! when time asks for it. The order inside a pass is what makes rotation safe:
//! an authority is published first, and signs second.

mod authority;
mod registered;
mod succession;
mod supplied;

use std::{collections::BTreeMap, future::Future, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use oz_runtime::{Clock, Selection};

use super::{
    Declared, Gates, Manager, RegistrationMode,
    budget::Budget,
    error::UpkeepError,
    register::{desired, labelled, rules_now},
    report::{Part, Report},
};
use succession::Succession;

use crate::{
    caller::KnownCallers,
    certificate::{
        CertPolicy, CertSource,
        authority::Leaf,
        resolver::Current,
        rotation::after,
        secret::{SecretAddress, Stored, certificates},
        store::Store,
    },
    registered_rules::RulesNow,
    registration::{
        apply::{Registrar, Wanted},
        conversions::Conversions,
        namespaces::Namespaces,
        origin::{Precedence, Writer},
    },
    server::paths::Paths,
};

/// How often all is looked at, whatever happens.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often what is supplied is looked at.
const SUPPLIED_EVERY: Duration = Duration::from_secs(5);
/// How long one part of a pass may take: a call that is never answered must not end all upkeep.
const PART_TIMEOUT: Duration = Duration::from_secs(20);

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
    rules: Vec<RulesNow>,
}

/// Looks after certificate and registration.
pub(super) struct Upkeep {
    declared: Arc<Declared>,
    publish: bool,
    replaces_eirinix: bool,
    source: Source,
    registrar: Registrar,
    current: Current,
    paths: Paths,
    callers: KnownCallers,
    /// When this process started.
    started: Timestamp,
    clock: Arc<dyn Clock>,
    report: Report,
    gates: Option<Gates>,
    namespaces: Namespaces,
    pub(super) conversions: Conversions,
    /// What to register as trusted, as last read: nothing has been read, somebody else says it, or this.
    bundle: Option<Option<String>>,
    /// What the Secret of the authority says in this pass, and when to look again.
    stored: Option<(Stored, Option<Timestamp>)>,
    /// What is supplied, beside what is served.
    succession: Succession,
    /// Whether what is registered cannot be read.
    unknown: bool,
    /// Since when a certificate is known to be in every configuration.
    published: BTreeMap<String, Timestamp>,
    /// What was last registered: a difference from it is damage, not a change of ours.
    registered: Option<Trusted>,
    /// When to look again at rules that another replica wrote.
    again: Option<Duration>,
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
        // Who only serves has no right to label.
        let labelled = if publish {
            labelled(&declared)
        } else {
            BTreeMap::new()
        };
        let namespaces = Namespaces::new(client.clone(), &declared.fingerprint, labelled);
        let conversions =
            Conversions::new(client.clone(), &declared.fingerprint, &declared.conversions);
        Self {
            namespaces,
            conversions,
            bundle: None,
            stored: None,
            succession: Succession::default(),
            unknown: true,
            registrar: Registrar::new(client, &declared.fingerprint, names.collect(), precedence),
            declared,
            publish,
            replaces_eirinix: manager.replaces_eirinix,
            source,
            current: manager.current.clone(),
            paths: manager.paths.clone(),
            callers: manager.callers.clone(),
            started: manager.clock().now(),
            clock: manager.clock().clone(),
            report: Report::new(manager),
            gates,
            published: BTreeMap::new(),
            registered: None,
            again: None,
            repairs: Budget::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_self_signed(&self) -> bool {
        matches!(self.source, Source::SelfSigned { .. })
    }

    /// Does what is due, each part whatever becomes of the others: what keeps us from the Secret keeps
    /// nobody's configuration broken, and is no reason to let a good leaf end.
    pub(super) async fn pass(&mut self) -> Passed {
        let now = self.now();
        let labelled = bounded(self.label_namespaces()).await;
        let labelled = self.report.passed(Part::Namespaces, &labelled, now);
        let certificate = bounded(self.certificate(now)).await;
        let mut registered = false;
        // Nothing has ever been read: then nobody can say what is to be registered.
        if self.bundle.is_some() {
            let registration = bounded(self.publish(now)).await;
            let registration = registration.and_then(|()| self.rules_fit());
            registered = self.report.passed(Part::Registration, &registration, now);
        }
        let served = self.serve(now);
        let wake = *served.as_ref().unwrap_or(&None);
        let certificate = certificate.and(served.map(drop));
        let certified = self.report.passed(Part::Certificate, &certificate, now);
        if let Some(gates) = self.gates.as_ref().filter(|_| labelled && registered) {
            match self.unknown_rules() {
                Some(hook) => {
                    let reason =
                        format!("registration (the rules of hook {hook} are not known yet)");
                    gates.registration.close(reason);
                }
                None => gates.registration.open(),
            }
        }
        if let Some(leaf) = self.current.leaf() {
            self.report.expiry("leaf", leaf.until);
        }
        Passed {
            // Clocks are stepped and timers are not: look at the time every so often.
            wake: wake
                .unwrap_or(Timestamp::MAX)
                .min(after(now, self.again.unwrap_or(LOOK_EVERY))),
            whole: labelled && registered && certified,
        }
    }

    /// Reads what certificates come from, and notes in [`Self::bundle`] what is to be trusted.
    async fn certificate(&mut self, now: Timestamp) -> Result<(), UpkeepError> {
        if !self.is_self_signed() {
            return self.supplied(now).await.map(drop);
        }
        self.stored = None;
        let outcome = self.authority(now).await;
        // Whatever keeps us from the Secret must not end a good leaf as well.
        if let Some(held) = self.held() {
            self.renew(&held, now)?;
        }
        self.stored = Some(outcome?);
        Ok(())
    }

    /// Serves with what has been published for long enough. Returns when to look again.
    fn serve(&mut self, now: Timestamp) -> Result<Option<Timestamp>, UpkeepError> {
        if !self.is_self_signed() {
            let due = self.take_supplied(now);
            return Ok(earliest([due, Some(after(now, SUPPLIED_EVERY)), None]));
        }
        let Some((stored, wake)) = self.stored.take() else {
            return Ok(None);
        };
        let follow = self.follow(&stored, now)?;
        Ok(earliest([wake, follow, self.promotion(&stored)]))
    }

    pub(super) async fn label_namespaces(&self) -> Result<(), UpkeepError> {
        Ok(self.namespaces.ensure().await?)
    }

    fn take(&self, leaf: Leaf) {
        self.current.swap(leaf);
        if let Some(gates) = &self.gates {
            gates.certificate.open();
        }
    }

    /// Registers what is to be trusted, or, if that is not for us to do, finds out what is registered.
    pub(super) async fn publish(&mut self, now: Timestamp) -> Result<(), UpkeepError> {
        let bundle = self.bundle.clone().flatten();
        let ours = self.publish && self.register(bundle.clone()).await?;
        let bundles = match bundle.filter(|_| ours) {
            Some(bundle) => Some(vec![bundle]),
            // Serving alone needs no right to read configurations.
            None => self.everywhere().await.ok(),
        };
        self.unknown = bundles.is_none();
        let bundles = bundles.unwrap_or_default();
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
    async fn register(&mut self, bundle: Option<String>) -> Result<bool, UpkeepError> {
        let trusted = Trusted {
            bundle,
            segment: self.paths.segment(),
            rules: rules_now(&self.declared.hooks),
        };
        let (bundle, segment) = (trusted.bundle.as_deref(), trusted.segment.as_deref());
        let desired = desired(&self.declared, &trusted.rules, bundle, segment);
        let first = self.registered.is_none();
        let before = self.registered.as_ref().map(|before| &before.rules);
        // The key of the authority, which no one has but replicas, and all of them.
        let held = self.held();
        let key = held.as_ref().map(|held| held.key.as_bytes());
        let wanted = Wanted {
            desired: &desired,
            key,
            rules_changed: before != Some(&trusted.rules),
        };
        let segment = trusted.segment.as_deref();
        let endpoint = &self.declared.endpoint;
        // Neither waits for the other, nor for what becomes of it.
        let (order, converted) = futures::future::join(
            self.registrar.ensure(wanted),
            self.conversions.ensure(endpoint, segment, bundle),
        )
        .await;
        let order = order?;
        self.again = order.again;
        let (converted, outcome) = match converted {
            Ok(changes) => (changes, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        if self.registered.as_ref() == Some(&trusted) {
            for change in order.changes.into_iter().chain(converted) {
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
            if self.replaces_eirinix {
                self.registrar.remove_eirinix().await?;
            }
        }
        self.registered = Some(trusted);
        outcome?;
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
        let callers = self.callers.clone();
        streams.push(
            futures::stream::unfold(callers, async |callers| {
                callers.changed().await;
                Some(((), callers))
            })
            .boxed(),
        );
        if let Some(name) = secret {
            let namespace = Some(self.declared.namespace.as_str());
            let this = Selection::named(&name);
            streams.push(crate::watch::touched::<Secret>(client, namespace, this).boxed());
        }
        if self.publish {
            streams.push(self.registrar.changes().boxed());
            streams.push(self.namespaces.changes().boxed());
            streams.push(self.conversions.changes().boxed());
            let followed = self
                .declared
                .hooks
                .iter()
                .filter_map(|it| it.followed.as_ref());
            streams.extend(followed.map(|rules| rules.changes().boxed()));
        }
        streams
    }
}

/// What a pass came to.
pub(super) struct Passed {
    /// When to come back if nothing happens before.
    pub(super) wake: Timestamp,
    /// Whether every part did what was due.
    pub(super) whole: bool,
}

async fn bounded<T>(part: impl Future<Output = Result<T, UpkeepError>>) -> Result<T, UpkeepError> {
    let part = tokio::time::timeout(PART_TIMEOUT, part).await;
    part.unwrap_or(Err(UpkeepError::TimedOut(PART_TIMEOUT)))
}

fn home(declared: &Declared, policy: &CertPolicy) -> SecretAddress {
    SecretAddress {
        name: policy.secret_name(&declared.fingerprint),
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
