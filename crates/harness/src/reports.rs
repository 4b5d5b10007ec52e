//! Reports to the broker: one at a time, one every two seconds at most, and again later if one fails. Nothing
//! waits for them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::log::Complaint;
use crate::ring::Ring;

/// The least time between two reports; the broker writes no more often.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause after failures.
const LAST_BACKOFF: Duration = Duration::from_secs(30);
/// How long the last report may take, with the one before it.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports to the broker.
pub(crate) struct Reports {
    broker: Arc<Broker>,
    /// What is being reported.
    running: Option<JoinHandle<Result<()>>>,
    /// Whether something happened since.
    has_news: bool,
    /// When the next may begin.
    next: Instant,
    backoff: Duration,
    complaint: Complaint,
}

impl Reports {
    /// Reports to this broker.
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

    /// There is something to report.
    pub(crate) const fn note(&mut self) {
        self.has_news = true;
    }

    /// Begins a report, if there is something to report and it is time.
    pub(crate) fn begin(&mut self, ring: &Ring) {
        if !self.has_news || self.running.is_some() || Instant::now() < self.next {
            return;
        }
        let (broker, body) = (Arc::clone(&self.broker), ring.body());
        self.has_news = false;
        self.next = Instant::now() + PAUSE;
        self.running = Some(tokio::spawn(async move { broker.report(body).await }));
    }

    /// Waits for the end of the report that is on its way; for ever if none is.
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

    /// Reports what has not been reported, once, and not for long.
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
            crate::log::say("the broker has not got the last events: no answer in 5 s");
        }
    }
}
