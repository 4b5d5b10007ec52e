//! The queue of reports to write: the latest events of each run, or the sum of its counts, for at most two seconds, since
//! each run is written at most once in that time. The queue is bounded in runs and in bytes. It is lost when the process
//! is killed; the next report of events contains them again, since each such report is complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::Refused;
use crate::metrics::Metrics;
use crate::write::{Outcome, Payload, RunName, Write};

/// The minimum time between two writes to one run.
const EVERY: Duration = Duration::from_secs(2);
/// The maximum time between two writes after consecutive failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The maximum number of attempts to write one report.
const TRIES: u32 = 8;
/// The maximum number of concurrent writes.
const WRITES: usize = 8;
/// The maximum number of runs in the queue, and of bytes.
const RUNS: usize = 4_096;
const BYTES: usize = 4 << 20;
/// The maximum time to write the queue at shutdown; the service is dropped a moment later.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(2_800);

/// The queue.
struct Waiting<P> {
    runs: HashMap<RunName, Entry<P>>,
    bytes: usize,
}

struct Entry<P> {
    /// The report to write, if there is one.
    payload: Option<P>,
    /// The earliest time of the next write.
    next: Instant,
    under_way: bool,
    failures: u32,
}

/// The queue of reports, which coalesces and writes them.
pub(crate) struct Reports<W: Write> {
    waiting: Mutex<Waiting<W::Payload>>,
    changed: Notify,
    writer: Arc<W>,
    metrics: Metrics,
    /// Counts the outcomes of writes.
    count: fn(&Metrics, &'static str),
}

impl<W: Write> Reports<W> {
    pub(crate) fn new(writer: W, metrics: Metrics, count: fn(&Metrics, &'static str)) -> Self {
        let waiting = Waiting {
            runs: HashMap::new(),
            bytes: 0,
        };
        Self {
            waiting: Mutex::new(waiting),
            changed: Notify::new(),
            writer: Arc::new(writer),
            metrics,
            count,
        }
    }

    fn wrote(&self, outcome: &'static str) {
        (self.count)(&self.metrics, outcome);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<W::Payload>> {
        self.waiting.lock()
    }

    /// Queues a report of a run, after the report of this run that is queued.
    pub(crate) fn put(&self, run: &RunName, payload: W::Payload) -> Result<(), Refused> {
        let mut waiting = self.waiting();
        let entry = waiting.runs.get(run);
        let earlier = entry.and_then(|entry| entry.payload.as_ref());
        let replaced = earlier.map_or(0, Payload::bytes);
        let bytes = waiting.bytes - replaced + payload.bytes_after(earlier);
        let known = entry.is_some();
        if bytes > BYTES || (!known && waiting.runs.len() >= RUNS) {
            self.wrote("refused");
            return Err(Refused::busy("too many reports wait to be written"));
        }
        let entry = waiting.runs.entry(run.clone()).or_insert_with(|| Entry {
            payload: None,
            next: Instant::now(),
            under_way: false,
            failures: 0,
        });
        let payload = match entry.payload.take() {
            Some(earlier) => {
                self.wrote("replaced");
                earlier.followed_by(payload)
            }
            None => payload,
        };
        let added = payload.bytes();
        entry.payload = Some(payload);
        waiting.bytes = waiting.bytes - replaced + added;
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Writes reports until `stop`, and then the rest of the queue.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let over = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH_TIMEOUT).await;
        };
        tokio::pin!(over);
        let mut writes = JoinSet::new();
        loop {
            let next = self.begin(&mut writes);
            if stop.is_cancelled() && writes.is_empty() && self.waiting().bytes == 0 {
                return;
            }
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
                Some(ended) = writes.join_next() => {
                    if let Ok((run, outcome, payload)) = ended {
                        self.ended(run, outcome, payload);
                    }
                }
                () = stop.cancelled(), if !stop.is_cancelled() => {}
                () = &mut over => {
                    let lost = self.waiting().runs.values().filter(|it| it.payload.is_some()).count();
                    tracing::warn!(lost, "reports were not written before the shutdown");
                    return;
                }
            }
        }
    }

    /// Starts the writes that are due, and returns the time of the next one. Removes idle runs.
    fn begin(&self, writes: &mut JoinSet<(RunName, Outcome, W::Payload)>) -> Option<Instant> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let waiting = &mut *waiting;
        waiting
            .runs
            .retain(|_, it| it.payload.is_some() || it.under_way || it.next > now);
        let mut next: Option<Instant> = None;
        for (run, entry) in &mut waiting.runs {
            if entry.under_way {
                continue;
            }
            if entry.next > now || writes.len() >= WRITES {
                // If all places for writes are in use, the end of a write wakes the loop. An entry that only holds the
                // time of its last write is removed when that time is long enough ago.
                if entry.next > now {
                    next = Some(next.map_or(entry.next, |next| next.min(entry.next)));
                }
                continue;
            }
            let Some(payload) = entry.payload.take() else {
                continue;
            };
            waiting.bytes -= payload.bytes();
            entry.under_way = true;
            entry.next = now + EVERY;
            let (writer, run) = (Arc::clone(&self.writer), run.clone());
            writes.spawn(async move {
                let outcome = writer.write(&run, &payload).await;
                (run, outcome, payload)
            });
        }
        next
    }

    fn ended(&self, run: RunName, outcome: Outcome, payload: W::Payload) {
        self.wrote(match outcome {
            Outcome::Written => "written",
            Outcome::Lost => "lost",
            Outcome::Failed => "failed",
        });
        let mut waiting = self.waiting();
        let waiting = &mut *waiting;
        let Some(entry) = waiting.runs.get_mut(&run) else {
            return;
        };
        entry.under_way = false;
        if outcome != Outcome::Failed {
            entry.failures = 0;
            return;
        }
        entry.failures += 1;
        let pause = EVERY * 2_u32.saturating_pow(entry.failures.min(8));
        entry.next = Instant::now() + pause.min(LONGEST_PAUSE);
        let later = entry.payload.as_ref();
        let replaced = later.map_or(0, Payload::bytes);
        let most = later.map_or(payload.bytes(), |later| later.bytes_after(Some(&payload)));
        let fits = waiting.bytes - replaced + most <= BYTES;
        if entry.failures < TRIES && fits {
            let payload = match entry.payload.take() {
                Some(later) => payload.followed_by(later),
                None => payload,
            };
            waiting.bytes = waiting.bytes - replaced + payload.bytes();
            entry.payload = Some(payload);
        }
    }
}

#[cfg(test)]
mod tests;
