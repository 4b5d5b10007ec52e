//! The queue of events to write: the latest events of each run, for at most two seconds, since each run is written at
//! most once in that time. The queue is bounded in runs and in bytes. It is lost when the process is killed; the next
//! report of the run contains the events again, since each report is complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::Refused;
use crate::metrics::Metrics;
use crate::write::{Outcome, RunName, Write};

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
#[derive(Default)]
struct Waiting {
    runs: HashMap<RunName, Entry>,
    bytes: usize,
}

struct Entry {
    /// The events to write, if there are any.
    events: Option<Box<RawValue>>,
    /// The earliest time of the next write.
    next: Instant,
    under_way: bool,
    failures: u32,
}

/// The queue of reports, which coalesces and writes them.
pub(crate) struct Reports<W> {
    waiting: Mutex<Waiting>,
    changed: Notify,
    writer: Arc<W>,
    metrics: Metrics,
}

impl<W: Write> Reports<W> {
    pub(crate) fn new(writer: W, metrics: Metrics) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            writer: Arc::new(writer),
            metrics,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Queues the events of a run; they replace the events of this run that are queued.
    pub(crate) fn put(&self, run: &RunName, events: Box<RawValue>) -> Result<(), Refused> {
        let mut waiting = self.waiting();
        let added = events.get().len();
        let entry = waiting.runs.get(run);
        let replaced = entry.and_then(|entry| entry.events.as_ref());
        let replaced = replaced.map_or(0, |events| events.get().len());
        let bytes = waiting.bytes - replaced + added;
        let known = entry.is_some();
        if bytes > BYTES || (!known && waiting.runs.len() >= RUNS) {
            self.metrics.wrote("refused");
            return Err(Refused::busy("too many reports wait to be written"));
        }
        waiting.bytes = bytes;
        match waiting.runs.get_mut(run) {
            Some(entry) => {
                if entry.events.replace(events).is_some() {
                    self.metrics.wrote("replaced");
                }
            }
            None => {
                let entry = Entry {
                    events: Some(events),
                    next: Instant::now(),
                    under_way: false,
                    failures: 0,
                };
                waiting.runs.insert(run.clone(), entry);
            }
        }
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Writes events until `stop`, and then the rest of the queue.
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
                    if let Ok((run, outcome, events)) = ended {
                        self.ended(run, outcome, events);
                    }
                }
                () = stop.cancelled(), if !stop.is_cancelled() => {}
                () = &mut over => {
                    let lost = self.waiting().runs.values().filter(|it| it.events.is_some()).count();
                    tracing::warn!(lost, "reports were not written before the end");
                    return;
                }
            }
        }
    }

    /// Starts the writes that are due, and returns the time of the next one. Removes idle runs.
    fn begin(&self, writes: &mut JoinSet<(RunName, Outcome, Box<RawValue>)>) -> Option<Instant> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let waiting = &mut *waiting;
        waiting
            .runs
            .retain(|_, it| it.events.is_some() || it.under_way || it.next > now);
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
            let Some(events) = entry.events.take() else {
                continue;
            };
            waiting.bytes -= events.get().len();
            entry.under_way = true;
            entry.next = now + EVERY;
            let (writer, run) = (Arc::clone(&self.writer), run.clone());
            writes.spawn(async move {
                let outcome = writer.write(&run, &events).await;
                (run, outcome, events)
            });
        }
        next
    }

    fn ended(&self, run: RunName, outcome: Outcome, events: Box<RawValue>) {
        self.metrics.wrote(match outcome {
            Outcome::Written => "written",
            Outcome::Lost => "lost",
            Outcome::Failed => "failed",
        });
        let mut waiting = self.waiting();
        let fits = waiting.bytes + events.get().len() <= BYTES;
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
        // Newer events replace these.
        if entry.events.is_none() && entry.failures < TRIES && fits {
            let added = events.get().len();
            entry.events = Some(events);
            waiting.bytes += added;
        }
    }
}

#[cfg(test)]
mod tests;
