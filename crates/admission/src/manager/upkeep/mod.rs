//! The upkeep of certificate and registration.
//!
//! One pass reads the Secret and the configurations, performs the due steps, and returns the instant of the
//! next pass. Passes run at start, after each change of one of these objects, and at due instants. The
//! order inside a pass makes rotation safe: an authority is published first, and signs second.

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

/// The maximum interval between passes, even without a change.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The interval of reads of a supplied certificate.
const SUPPLIED_EVERY: Duration = Duration::from_secs(5);
/// The timeout of one part of a pass: a call without a response must not end all upkeep.
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

/// The parts of a registration that change while a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trusted {
    bundle: Option<String>,
    segment: Option<String>,
    rules: Vec<RulesNow>,
}

/// The upkeep of certificate and registration.
pub(super) struct Upkeep {
    declared: Arc<Declared>,
    publish: bool,
    replaces_eirinix: bool,
    source: Source,
    registrar: Registrar,
    current: Current,
    paths: Paths,
    callers: KnownCallers,
    /// The instant at which this process started.
    started: Timestamp,
    clock: Arc<dyn Clock>,
    report: Report,
    gates: Option<Gates>,
    namespaces: Namespaces,
    pub(super) conversions: Conversions,
    /// The bundle to register, as last read: `None` before the first read, `Some(None)` if another
    /// component defines it.
    bundle: Option<Option<String>>,
    /// The content of the Secret of the authority in this pass, and the instant of the next read.
    stored: Option<(Stored, Option<Timestamp>)>,
    /// The supplied certificates, in addition to the served one.
    succession: Succession,
    /// True if the registered configurations cannot be read.
    unknown: bool,
    /// The instant since which each certificate is known to be in every configuration.
    published: BTreeMap<String, Timestamp>,
    /// The last registered state: a difference from it is an external change.
    registered: Option<Trusted>,
    /// The pause before the next check of rules that another replica wrote.
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
        // A process that only serves has no right to label.
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

    /// Performs all due work. Each part is independent of the failure of the others: a failure to read the
    /// Secret blocks neither the repair of a configuration nor the renewal of a valid leaf.
    pub(super) async fn pass(&mut self) -> Passed {
        let now = self.now();
        let labelled = bounded(self.label_namespaces()).await;
        let labelled = self.report.passed(Part::Namespaces, &labelled, now);
        let certificate = bounded(self.certificate(now)).await;
        let mut registered = false;
        // Before the first read, the bundle to register is unknown.
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
            // Clocks are stepped and timers are not: check the time periodically.
            wake: wake
                .unwrap_or(Timestamp::MAX)
                .min(after(now, self.again.unwrap_or(LOOK_EVERY))),
            whole: labelled && registered && certified,
        }
    }

    /// Reads the source of certificates, and sets [`Self::bundle`] to the trusted bundle.
    async fn certificate(&mut self, now: Timestamp) -> Result<(), UpkeepError> {
        if !self.is_self_signed() {
            return self.supplied(now).await.map(drop);
        }
        self.stored = None;
        let outcome = self.authority(now).await;
        // A failure to read the Secret must not let a valid leaf expire.
        if let Some(held) = self.held() {
            self.renew(&held, now)?;
        }
        self.stored = Some(outcome?);
        Ok(())
    }

    /// Serves with a certificate that has been published for long enough. Returns the instant of the next
    /// check.
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

    /// Registers the trusted bundle or, if this process does not register, reads the registered bundles.
    pub(super) async fn publish(&mut self, now: Timestamp) -> Result<(), UpkeepError> {
        let bundle = self.bundle.clone().flatten();
        let ours = self.publish && self.register(bundle.clone()).await?;
        let bundles = match bundle.filter(|_| ours) {
            Some(bundle) => Some(vec![bundle]),
            // A process that only serves requires no right to read configurations.
            None => self.everywhere().await.ok(),
        };
        self.unknown = bundles.is_none();
        let bundles: Vec<_> = bundles.into_iter().flatten().collect();
        let everywhere = |pem: &String| bundles.iter().all(|bundle| bundle.contains(pem.as_str()));
        let known = bundles.first().into_iter();
        let known = known.flat_map(|it| certificates(it)).filter(everywhere);
        let known: Vec<_> = known.collect();
        self.published.retain(|pem, _| known.contains(pem));
        for pem in known {
            self.published.entry(pem).or_insert(now);
        }
        Ok(())
    }

    /// Registers the configurations. Returns `true` if all of them are those of this replica; otherwise
    /// they are those of a replica that started later.
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
        // The key of the authority, which only replicas have, and all of them.
        let held = self.held();
        let key = held.as_ref().map(|held| held.key.as_bytes());
        let wanted = Wanted {
            desired: &desired,
            key,
            rules_changed: before != Some(&trusted.rules),
        };
        let segment = trusted.segment.as_deref();
        let endpoint = &self.declared.endpoint;
        // Neither call waits for the other, and each is independent of the failure of the other.
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

    /// Returns the pause before the next pass, regardless of the number of changes.
    pub(super) fn pause(&mut self) -> Duration {
        self.repairs.pause(std::time::Instant::now())
    }

    /// Returns the changes that cause a pass.
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
            let this = Selection::with_name(&name);
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

/// The result of a pass.
pub(super) struct Passed {
    /// The instant of the next pass if no change occurs before.
    pub(super) wake: Timestamp,
    /// True if every part completed its due work.
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

/// Checks whether this process writes configurations.
pub(super) fn publishes(mode: RegistrationMode) -> bool {
    mode == RegistrationMode::Maintain
}
