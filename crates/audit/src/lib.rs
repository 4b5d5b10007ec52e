//! The audit trail of a process: audit records are chained and passed to a list of outlets (the log, the cluster, a
//! collector), each of which writes at its own pace. A caller that requires a record before it continues waits for it;
//! no other caller waits, even during a failure. The crate also manages the keys that sign the trail and seal the
//! decisions of oz.

mod checkpoints;
mod http;
mod key;
mod key_watch;
mod ledger;
mod log;
mod meters;
mod notify;
mod objects;
mod outlets;
mod public;
mod rotation;
mod seal_keys;
mod sink;
mod spool;
mod vouching;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use oz_config::{Collector, Loaded, OzConfiguration};
use oz_core::controller::Failure;
use oz_runtime::Clock;
use oz_trail::{Action, AuditKey, Decision, Quota, Record};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc, oneshot};

pub use key_watch::AuditKeyWatch;
pub use rotation::KeyRotation;
pub use seal_keys::{SealKeyRotation, SealKeyWatch, seal_keys};
pub use sink::{LogSink, Sink};
pub use vouching::WriterVouching;

use ledger::{Beyond, Ledger, Origin, Submitted};
use meters::Meters;
use notify::Notifier;
use outlets::{Intake, Outlet, Written};

/// The timeout of a caller that waits for a record.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// The reason of a failure to record a connection beyond the quota of its user, or beyond the backlog for the
/// connections of all users.
pub const TOO_MANY_CONNECTIONS: &str = "TooManyConnections";
/// The maximum time for which the shutdown of a process waits for outstanding records.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The audit trail of a process. Clones are cheap and share it.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    /// The location of the signing key.
    keys: key::WriterKeys,
    /// Notifies that another key signs.
    key_changed: Notify,
    clock: Arc<dyn Clock>,
    meters: Meters,
    /// Notifies that records can be signed, or that a summary is due.
    changed: Notify,
    outlets: Vec<Box<dyn Intake>>,
    notifier: Notifier,
}

/// Returns the maximum number of records that wait for the collector. For a required collector it is at least the size
/// of the backlog: after a dropped record, no user would ever get access again.
fn spool(collector: &Collector) -> usize {
    match collector.required {
        true => collector.spool.max(ledger::BACKLOG),
        false => collector.spool,
    }
}

/// A record in progress: one channel reports that it is in the log, the other that all required outlets have it.
struct UnderWay {
    log: oneshot::Receiver<()>,
    all: oneshot::Receiver<()>,
}

impl Trail {
    /// Begins the trail of one replica of one component. Its first record names the configuration of the process.
    ///
    /// # Errors
    /// If no outlet is configured, a file cannot be opened, or the signing key can be neither read nor created.
    pub async fn start(
        client: &Client,
        clock: impl Clock,
        namespace: &str,
        component: &'static str,
        replica: &str,
        config: &Loaded,
    ) -> anyhow::Result<Self> {
        let OzConfiguration {
            audit,
            notifications,
            installation,
            ..
        } = &config.configuration;
        let out = log::Out::open(&audit.log.0)?;
        let keys = key::WriterKeys::new(client, namespace, component)?;
        let (key, made) = key::signing_key(&keys).await?;
        let origin = Origin {
            component: component.to_owned(),
            replica: replica.to_owned(),
            nonce: key::nonce()?,
            known: checkpoints::read_heads(&keys, &key).await?,
            details: config.details(),
            key: key.clone(),
        };
        let lines = log::LineQueue::default();
        let (jobs, queue) = mpsc::unbounded_channel();
        let spool = spool::Spool::new(spool(&audit.http));
        let mut outlets: Vec<Box<dyn Intake>> = Vec::new();
        let mut required = BTreeSet::new();
        if out.is_some() {
            outlets.push(Box::new(lines.clone()));
            required.insert(Outlet::Log);
        }
        if audit.objects {
            outlets.push(Box::new(objects::Jobs(jobs)));
            required.insert(Outlet::Objects);
        }
        let proxies = config
            .configuration
            .proxies(|name| std::env::var(name).ok());
        let collector = http::Collector::configured(&audit.http, &installation.secrets, &proxies)?;
        if collector.is_some() {
            outlets.push(Box::new(spool.clone()));
            if audit.http.required {
                required.insert(Outlet::Collector);
            }
        }
        let notifier = Notifier::start(notifications, &installation.secrets, proxies)?;
        outlets.push(Box::new(notifier.clone()));
        let shared = Arc::new(Shared {
            ledger: Mutex::new(Ledger::new(origin, required)),
            keys,
            key_changed: Notify::new(),
            clock: Arc::new(clock),
            meters: Meters::default(),
            changed: Notify::new(),
            outlets,
            notifier,
        });
        let trail = Self { shared };
        if let Some(out) = out {
            log::start(trail.clone(), lines, out, audit.fsync)
                .context("failed to start the thread that writes the audit log")?;
        }
        if audit.objects {
            tokio::spawn(objects::write(trail.clone(), client.clone(), queue));
        }
        if let Some(collector) = collector {
            tokio::spawn(http::deliver(trail.clone(), collector, spool, component));
        }
        tokio::spawn(checkpoints::keep(
            trail.clone(),
            client.clone(),
            namespace.to_owned(),
            audit.checkpoint.wait(),
        ));
        let first = trail.ledger().begin(trail.shared.clock.now());
        trail.hand_out(vec![first]);
        trail.shared.changed.notify_one();
        if made {
            trail.key_made(&key.published(None));
        }
        Ok(trail)
    }

    /// Sets the number of connections of one user that are recorded in a minute where each has an individual record; no
    /// limit if absent. Must be called before the first record.
    #[must_use]
    pub fn with_connections_per_minute(self, per_minute: Option<NonZeroU32>) -> Self {
        self.ledger().limit_connections(per_minute);
        self
    }

    /// Registers the metrics of the trail.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.meters.register(registry);
        self.shared.notifier.register(registry);
    }

    /// Records an event without waiting for it. The record is written as soon as possible; if the backlog is full and
    /// the record cannot be kept either, the loss is logged and counted.
    pub fn note(&self, record: Record) {
        let text = record.line();
        if let Err(failure) = self.submit(record) {
            tracing::error!(%failure, record = %text, "an audit record is lost");
        }
    }

    /// Closes the trail: waits a limited time for the records in progress, and signs them.
    pub async fn close(&self) {
        let summaries = self.ledger().summaries(jiff::Timestamp::MAX);
        for record in summaries {
            let _ = self.append(record);
        }
        let written = async {
            while !self.ledger().is_settled() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, written).await;
        self.ledger().close();
        self.shared.changed.notify_one();
        let signed = async {
            while self.ledger().unsigned() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::join!(
            tokio::time::timeout(CLOSE_TIMEOUT, signed),
            tokio::time::timeout(CLOSE_TIMEOUT, self.delivered())
        );
        let left = self.undelivered();
        if left > 0 {
            let lost = u64::try_from(left).unwrap_or(u64::MAX);
            self.shared.meters.dropped.inc_by(lost);
            tracing::warn!(lost, "the audit collector did not accept the last records");
        }
    }

    /// Waits until every outlet that a process may leave behind has all records.
    async fn delivered(&self) {
        while self.undelivered() > 0 || self.shared.notifier.waiting() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn undelivered(&self) -> usize {
        let outlets = self.shared.outlets.iter();
        outlets.map(|outlet| outlet.undelivered()).sum()
    }

    fn key_made(&self, published: &oz_trail::Published) {
        let key = &published.public_key;
        let (subject, reason, message) = match &published.writer {
            // The operator vouches for it again when its own key is replaced.
            Some(writer) => (
                format!("{key} {}", published.vouched.as_deref().unwrap_or_default()),
                "WriterKeyVouched",
                format!("{writer} signs the audit trail with the key {key}"),
            ),
            None => (
                key.clone(),
                "KeyCreated",
                format!("the audit trail is signed with the key {key}"),
            ),
        };
        let now = self.shared.clock.now();
        let (action, note) = (Action::KeyRotated, Decision::Note);
        let record = Record::about(now, action, note, &subject, reason, message);
        // With these details, a user who has a log and only the old key can trust the new one.
        let details = [
            ("publicKey", Some(key)),
            ("vouched", published.vouched.as_ref()),
            ("writer", published.writer.as_ref()),
        ];
        let details = details.into_iter();
        let details = details.filter_map(|(name, value)| Some((name, value?.clone())));
        self.note(details.fold(record, |record, (name, value)| record.detail(name, value)));
    }

    fn swap_key(&self, key: AuditKey) {
        self.ledger().swap_key(key);
        self.shared.key_changed.notify_one();
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let ledger = &self.shared.ledger;
        ledger.lock()
    }

    /// Submits a record. Returns channels that report that it is written, or `None` if the caller need not wait.
    fn submit(&self, record: Record) -> Result<Option<UnderWay>, Failure> {
        // Under one lock: the order in each queue is the order of the chain.
        let mut ledger = self.ledger();
        let (submitted, written) = ledger.submit(record, self.shared.clock.now());
        self.hand_out(written);
        self.shared
            .meters
            .sizes(ledger.waiting(), ledger.unsigned());
        drop(ledger);
        self.shared.changed.notify_one();
        match submitted {
            Submitted::Full => {
                self.shared.meters.refused.inc();
                Err(failed("too many audit records wait to be written"))
            }
            Submitted::Beyond(beyond) => {
                if beyond == Beyond::Backlog {
                    self.shared.meters.refused.inc();
                }
                Err(too_many(beyond))
            }
            Submitted::Under { log, all } => Ok(Some(UnderWay { log, all })),
            Submitted::Done => Ok(None),
        }
    }

    /// Appends a record as [`Trail::submit`] does, without flood control.
    fn append(&self, record: Record) -> Result<(), Failure> {
        let mut ledger = self.ledger();
        let (submitted, written) = ledger.append(record);
        self.hand_out(written);
        match submitted {
            Submitted::Full | Submitted::Beyond(_) => Err(failed(
                "too many audit records wait to \
                be written",
            )),
            Submitted::Under { .. } | Submitted::Done => Ok(()),
        }
    }

    fn hand_out(&self, written: Vec<Written>) {
        for written in written {
            self.shared.meters.written(&written.entry.record);
            for outlet in &self.shared.outlets {
                self.shared.meters.dropped.inc_by(outlet.record(&written));
            }
        }
    }

    /// Notes that an outlet has written this record. The writer of the outlet calls it.
    fn arrived(&self, seq: u64, outlet: Outlet) {
        self.change(|ledger| ledger.arrived(seq, outlet));
        self.shared.changed.notify_one();
    }

    /// Notes that an outlet will never write this record. The writer of the outlet calls it.
    fn lost(&self, seq: u64, outlet: Outlet) {
        self.shared.meters.dropped.inc();
        self.change(|ledger| ledger.lost(seq, outlet));
        self.shared.changed.notify_one();
    }

    /// Notes that a checkpoint up to this position was published.
    fn published(&self, seq: u64) {
        self.change(|ledger| ledger.published(seq));
    }

    fn change(&self, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        self.shared
            .meters
            .sizes(ledger.waiting(), ledger.unsigned());
    }
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Trail").finish_non_exhaustive()
    }
}

fn failed(why: &str) -> Failure {
    Failure::transient(
        "RecordFailed",
        format!("failed to write the audit record: {why}"),
    )
}

/// Returns the failure of a record that exceeds a quota or the backlog.
fn too_many(beyond: Beyond) -> Failure {
    let message = match beyond {
        Beyond::Quota(Quota::Unproven) => {
            "the request comes from an address that is not known as an API server's, and the audit \
             records of such requests have reached their limit per minute; try again in some \
             seconds"
        }
        Beyond::Quota(Quota::Connections) => {
            "each connection requires an audit record, and this user has reached the limit of \
             connections per minute; wait some seconds and try again, or have an administrator \
             raise webhook.maxConnectionsPerMinute of the webhook"
        }
        Beyond::Backlog => {
            "each connection requires an audit record, and too many audit records wait to be \
             written; try again in some seconds"
        }
    };
    Failure::transient(TOO_MANY_CONNECTIONS, message)
}

impl Sink for Trail {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        let everywhere = record.action.is_gate();
        async move {
            let Some(UnderWay { log, all }) = self.submit(record.clone())? else {
                return Ok(());
            };
            let receiver = if everywhere { all } else { log };
            match tokio::time::timeout(RECORD_TIMEOUT, receiver).await {
                Ok(Ok(())) => Ok(()),
                _ => {
                    self.shared.meters.refused.inc();
                    Err(failed(self.ledger().waits_for(everywhere)))
                }
            }
        }
        .boxed()
    }
}
