//! Reports to the broker: one at a time, at most one every two seconds; a failed report is retried later. Nothing waits
//! for reports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::log::Complaint;
use crate::ring::Ring;

/// The minimum time between two reports; the broker writes no more often.
const PAUSE: Duration = Duration::from_secs(2);
/// The maximum pause after failures.
const LAST_BACKOFF: Duration = Duration::from_secs(30);
/// The maximum time for the last report, including the report before it.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// The reporting to the broker.
pub(crate) struct Reports {
    broker: Arc<Broker>,
    /// The report that is being sent.
    running: Option<JoinHandle<Result<()>>>,
    /// True if there are events since the last report.
    has_news: bool,
    /// The earliest time of the next report.
    next: Instant,
    backoff: Duration,
    complaint: Complaint,
}

impl Reports {
    /// Creates the reporting to this broker.
    pub(crate) fn new(broker: Arc<Broker>) -> Self {
        Self {
            broker,
            running: None,
            has_news: false,
            next: Instant::now(),
            backoff: PAUSE,
            complaint: Complaint::silent(),
        }
    }

    /// Notes that there is something to report.
    pub(crate) const fn note(&mut self) {
        self.has_news = true;
    }

    /// Starts a report if there are new events and a report is due.
    pub(crate) fn begin(&mut self, ring: &Ring) {
        if !self.has_news || self.running.is_some() || Instant::now() < self.next {
            return;
        }
        let (broker, body) = (Arc::clone(&self.broker), ring.body());
        self.has_news = false;
        self.next = Instant::now() + PAUSE;
        self.running = Some(tokio::spawn(async move { broker.report(body).await }));
    }

    /// Waits until the current report has ended; forever if there is none.
    pub(crate) async fn finished(&mut self) {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let result = running.await.unwrap_or_else(|error| Err(error.into()));
        self.running = None;
        let reported = self.complaint.about("the broker has no events", result);
        if reported.is_some() {
            self.backoff = PAUSE;
        } else {
            self.has_news = true;
            self.next = Instant::now() + self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
    }

    /// Reports the rest, once, and for a limited time.
    pub(crate) async fn finish(mut self, ring: &Ring) {
        let last = async {
            if self.running.is_some() {
                self.finished().await;
            }
            if self.has_news {
                self.next = Instant::now();
                self.begin(ring);
                self.finished().await;
            }
        };
        if tokio::time::timeout(LAST_TIMEOUT, last).await.is_err() {
            crate::log::say("the broker has not received the last events: no response in 5 s");
        }
    }
}
