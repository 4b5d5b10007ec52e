//! The counts of destinations for the broker: the first connection or refusal of each kind at once, repeats at most once
//! a minute. Their number is limited, since the agent chooses the names.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use oz_api::harness::wire::{EgressCount, EgressReason, MAX_DESTINATIONS, REPORT_PATH, Report};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::broker::{Broker, Call, Failure};
use crate::cut;
use crate::log::Complaint;

/// The time between two reports about the same destination.
const REPEAT: Duration = Duration::from_secs(60);
/// The minimum time between two reports.
const PAUSE: Duration = Duration::from_secs(1);
/// The time until another attempt after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The maximum number of destinations that are counted separately.
const MAX_COUNTED: usize = 256;
/// The maximum length of a host in a report.
const MAX_HOST: usize = 255;
/// The maximum time for the last report.
const LAST_TIMEOUT: Duration = Duration::from_secs(3);

/// A destination with the result of its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: String,
    port: u16,
    reason: Option<EgressReason>,
    credential: Option<String>,
}

/// The counts since the last report.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    granted: u64,
    refused: u64,
    uses: u64,
    /// The earliest time of the next report; none before the first.
    next: Option<Instant>,
}

impl Count {
    const fn is_empty(&self) -> bool {
        self.granted == 0 && self.refused == 0 && self.uses == 0
    }
}

/// The counts of all destinations.
#[derive(Default)]
pub(crate) struct Counts {
    counts: Mutex<BTreeMap<Key, Count>>,
    changed: Notify,
}

impl Counts {
    /// Counts a connection that the proxy opened.
    pub(crate) fn grant(&self, host: &str, port: u16) {
        self.add(host, port, None, None, |count| count.granted += 1);
    }

    /// Counts a request that carries a credential.
    pub(crate) fn lend(&self, host: &str, port: u16, credential: &str) {
        let credential = Some(credential.to_owned());
        self.add(host, port, None, credential, |count| count.uses += 1);
    }

    /// Counts a refusal.
    pub(crate) fn refuse(
        &self,
        host: &str,
        port: u16,
        reason: EgressReason,
        credential: Option<String>,
    ) {
        self.add(host, port, Some(reason), credential, |count| {
            count.refused += 1;
        });
    }

    fn add(
        &self,
        host: &str,
        port: u16,
        reason: Option<EgressReason>,
        credential: Option<String>,
        add: impl FnOnce(&mut Count),
    ) {
        let mut key = Key {
            host: cut::prefix(host, MAX_HOST).to_owned(),
            port,
            reason,
            credential,
        };
        let mut counts = self.counts.lock();
        if counts.len() >= MAX_COUNTED && !counts.contains_key(&key) {
            let now = Instant::now();
            counts
                .retain(|_, count| !count.is_empty() || count.next.is_some_and(|next| next > now));
            if counts.len() >= MAX_COUNTED {
                // All others together.
                key = Key {
                    reason,
                    ..Key::default()
                };
            }
        }
        add(counts.entry(key).or_default());
        drop(counts);
        self.changed.notify_one();
    }

    /// Takes the counts that are due, or all of them. Returns the time of the next ones, too.
    fn take(&self, now: Instant, all: bool) -> (Vec<EgressCount>, Option<Instant>) {
        let mut taken = Vec::new();
        let mut next: Option<Instant> = None;
        for (key, count) in self.counts.lock().iter_mut() {
            if count.is_empty() {
                continue;
            }
            let due = count.next.unwrap_or(now);
            if (due <= now || all) && taken.len() < MAX_DESTINATIONS {
                taken.push(EgressCount {
                    host: key.host.clone(),
                    port: key.port,
                    granted: count.granted,
                    refused: count.refused,
                    reason: key.reason,
                    credential: key.credential.clone(),
                    uses: count.uses,
                });
                *count = Count {
                    next: Some(now + REPEAT),
                    ..Count::default()
                };
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        (taken, next)
    }

    /// Adds counts that did not arrive; they are due with the next report.
    fn restore(&self, taken: Vec<EgressCount>) {
        let mut counts = self.counts.lock();
        for one in taken {
            let key = Key {
                host: one.host,
                port: one.port,
                reason: one.reason,
                credential: one.credential,
            };
            let count = counts.entry(key).or_default();
            count.granted += one.granted;
            count.refused += one.refused;
            count.uses += one.uses;
            count.next = None;
        }
    }

    /// Reports counts when they are due, until the caller drops this.
    pub(crate) async fn run(&self, broker: &Broker) {
        let mut complaint = Complaint::silent();
        loop {
            let (taken, next) = self.take(Instant::now(), false);
            if taken.is_empty() {
                let due = async {
                    match next {
                        Some(next) => sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = due => {}
                    () = self.changed.notified() => {}
                }
                continue;
            }
            let sent = self.send(broker, taken).await;
            let failed = sent.is_err();
            complaint.about("the broker does not take the counts of destinations", sent);
            sleep(if failed { RETRY } else { PAUSE }).await;
        }
    }

    /// Reports everything that is left, once, and for a limited time.
    pub(crate) async fn finish(&self, broker: &Broker) {
        let (taken, _) = self.take(Instant::now(), true);
        if !taken.is_empty() {
            // The container ends in any case.
            let _ = timeout(LAST_TIMEOUT, self.send(broker, taken))
                .await
                .is_ok();
        }
    }

    async fn send(&self, broker: &Broker, taken: Vec<EgressCount>) -> anyhow::Result<()> {
        let report = Report {
            events: Vec::new(),
            egress: taken,
        };
        let body = serde_json::to_vec(&report)?;
        let unsent = Unsent {
            counts: self,
            taken: report.egress,
        };
        match broker.ask(Call::new(Method::POST, REPORT_PATH, body)).await {
            Ok(_) => {
                unsent.arrived();
                Ok(())
            }
            Err(error) => Err(Failure::into_error(error)),
        }
    }
}

/// Counts of a report that may not arrive: also when the report is dropped, since the proxy stops.
struct Unsent<'a> {
    counts: &'a Counts,
    taken: Vec<EgressCount>,
}

impl Unsent<'_> {
    fn arrived(mut self) {
        self.taken.clear();
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.counts.restore(std::mem::take(&mut self.taken));
    }
}
