//! The audit trail of a process: what is to be recorded is chained, and written to the log, to the
//! cluster and to a collector, each at its own pace. Who needs a record before going on waits for
//! it; nobody else does, whatever is broken.

mod args;
mod checkpoints;
mod http;
mod key;
mod ledger;
mod log;
mod meters;
mod objects;
mod rotation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use oz_core::audit::{Action, Decision, Record};
use oz_core::controller::Failure;
use oz_engine::Sink;
use oz_runtime::Clock;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc, oneshot};

pub use args::{AuditArgs, Fsync};
pub use rotation::rotate_keys;

use ledger::{Ledger, Origin, Place, Submitted, Written};
use meters::Meters;

/// How long somebody waits for a record.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of a process waits for what is still to be written.
const CLOSE: Duration = Duration::from_secs(3);

/// Records what happens. Cheap to clone.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    clock: Arc<dyn Clock>,
    meters: Meters,
    /// Something can be signed, or a summary is due.
    changed: Notify,
    lines: Option<log::Lines>,
    objects: Option<mpsc::UnboundedSender<objects::Job>>,
    collector: Option<http::Spool>,
}

impl Trail {
    /// Begins the trail of one replica of one component.
    ///
    /// # Errors
    /// When there is nowhere to write to, a file cannot be opened, or the signing key can be
    /// neither read nor made.
    pub async fn start(
        client: &Client,
        clock: impl Clock,
        namespace: &str,
        component: &'static str,
        replica: &str,
        args: &AuditArgs,
    ) -> anyhow::Result<Self> {
        let out = args.audit_log.open()?;
        if out.is_none() && !args.audit_objects {
            bail!(
                "failed to start the audit trail: with --audit-log=none and --audit-objects=false \
                 nothing would be on record"
            );
        }
        let (key, made) = key::signing_key(client, namespace).await?;
        let mut required = Place::NOWHERE;
        if out.is_some() {
            required = required.and(Place::LOG);
        }
        if args.audit_objects {
            required = required.and(Place::OBJECTS);
        }
        if args.audit_http.is_some() && args.audit_http_required {
            required = required.and(Place::COLLECTOR);
        }
        let origin = Origin {
            component: component.to_owned(),
            replica: replica.to_owned(),
            nonce: key::nonce()?,
            known: checkpoints::known(client, namespace, &key).await?,
            key: key.clone(),
        };
        let lines = out.is_some().then(log::Lines::default);
        let (jobs, queue) = mpsc::unbounded_channel();
        let collector = args
            .audit_http
            .as_ref()
            .map(|_| http::Spool::new(args.spool()));
        let shared = Arc::new(Shared {
            ledger: Mutex::new(Ledger::new(origin, required)),
            clock: Arc::new(clock),
            meters: Meters::default(),
            changed: Notify::new(),
            lines: lines.clone(),
            objects: args.audit_objects.then_some(jobs),
            collector: collector.clone(),
        });
        let trail = Self { shared };
        if let Some((out, lines)) = out.zip(lines) {
            log::start(trail.clone(), lines, out, args.audit_fsync)
                .context("failed to start the thread that writes the audit log")?;
        }
        if args.audit_objects {
            tokio::spawn(objects::write(trail.clone(), client.clone(), queue));
        }
        if let (Some(url), Some(spool)) = (&args.audit_http, collector) {
            let collector = http::Collector::new(url, args)?;
            tokio::spawn(http::deliver(trail.clone(), collector, spool, component));
        }
        tokio::spawn(checkpoints::keep(
            trail.clone(),
            client.clone(),
            namespace.to_owned(),
            args.audit_checkpoint,
        ));
        if made {
            trail.key_made(&key.published(None));
        }
        Ok(trail)
    }

    /// Adds what the trail counts.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.meters.register(registry);
    }

    /// Records something without waiting for it. It is written as soon as it can be; when so much
    /// waits already that it cannot be kept either, that is logged and counted.
    pub fn note(&self, record: Record) {
        let text = record.line();
        if let Err(failure) = self.submit(record) {
            tracing::error!(%failure, record = %text, "an audit record is lost");
        }
    }

    /// Ends the trail: waits a moment for what is under way, and signs it.
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
        let _ = tokio::time::timeout(CLOSE, written).await;
        self.ledger().close();
        self.shared.changed.notify_one();
        let signed = async {
            while self.ledger().unsigned() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::join!(
            tokio::time::timeout(CLOSE, signed),
            tokio::time::timeout(CLOSE, self.delivered())
        );
        let left = self.shared.collector.as_ref().map_or(0, http::Spool::len);
        if left > 0 {
            let lost = u64::try_from(left).unwrap_or(u64::MAX);
            self.shared.meters.dropped.inc_by(lost);
            tracing::warn!(lost, "the audit collector did not take the last records");
        }
    }

    /// Until the collector, if there is one, has everything.
    async fn delivered(&self) {
        while self
            .shared
            .collector
            .as_ref()
            .is_some_and(|spool| spool.len() > 0)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn key_made(&self, published: &oz_core::audit::Published) {
        let record = Record::about(
            self.shared.clock.now(),
            Action::KeyRotated,
            Decision::Note,
            &published.public_key,
            "KeyMade",
            format!(
                "the audit trail is signed with the key {}",
                published.public_key
            ),
        )
        .detail("publicKey", published.public_key.clone());
        // Whoever has a log and the old key only can believe the new one by this.
        let record = match &published.vouched {
            Some(vouched) => record.detail("vouched", vouched.clone()),
            None => record,
        };
        self.note(record);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let ledger = &self.shared.ledger;
        ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record in; what comes back tells when it is written.
    fn submit(&self, record: Record) -> Result<Submitted, Failure> {
        // Under one lock: what follows in the chain follows in every queue.
        let mut ledger = self.ledger();
        let (submitted, written) = ledger.submit(record, self.shared.clock.now());
        self.hand_out(written);
        self.shared
            .meters
            .sizes(ledger.waiting(), ledger.unsigned());
        drop(ledger);
        self.shared.changed.notify_one();
        if matches!(submitted, Submitted::Full) {
            self.shared.meters.refused.inc();
            return Err(failed(
                "so many records wait to be written that no more can be kept",
            ));
        }
        Ok(submitted)
    }

    /// As [`Trail::submit`], past the flood control.
    fn append(&self, record: Record) -> Result<(), Failure> {
        let mut ledger = self.ledger();
        let (submitted, written) = ledger.append(record);
        self.hand_out(written);
        match submitted {
            Submitted::Full => Err(failed("too many records wait")),
            _ => Ok(()),
        }
    }

    fn hand_out(&self, written: Vec<Written>) {
        for Written { entry, line } in written {
            self.shared.meters.written(&entry.record);
            let seq = entry.link.seq;
            if let Some(collector) = &self.shared.collector {
                let lost = collector.push(http::Event::of(&entry, line.clone()));
                self.shared.meters.dropped.inc_by(lost);
            }
            if let Some(lines) = &self.shared.lines {
                lines.push(Some(seq), line);
            }
            if let Some(objects) = &self.shared.objects {
                let event = Box::new(entry.into());
                // The task ends with the process only.
                let _ = objects.send(objects::Job { seq, event });
            }
        }
    }

    /// Said by a writer: this record is where it was to be.
    fn arrived(&self, seq: u64, place: Place) {
        self.change(|ledger| ledger.arrived(seq, place));
        self.shared.changed.notify_one();
    }

    /// Said by a writer: this record will never be there.
    fn lost(&self, seq: u64, place: Place) {
        self.shared.meters.dropped.inc();
        self.change(|ledger| ledger.lost(seq, place));
        self.shared.changed.notify_one();
    }

    /// A checkpoint as far as this was published.
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

impl Sink for Trail {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        let everywhere = record.action.is_gate();
        async move {
            let receiver: oneshot::Receiver<()> = match self.submit(record.clone())? {
                Submitted::Under { log, all } => {
                    if everywhere {
                        all
                    } else {
                        log
                    }
                }
                Submitted::Done | Submitted::Full => return Ok(()),
            };
            match tokio::time::timeout(PATIENCE, receiver).await {
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
