//! The state of a watch: its data may be old. Probes and a metric report this, so that old data is
//! not taken for the present state.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
#[cfg(feature = "metrics")]
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use tokio::time::Instant;

/// The time without data after which a watch lags: bookmarks arrive once a minute.
pub(crate) const LAGS: Duration = Duration::from_secs(150);

/// The state of one watch. Clones share it.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    /// The title of the watch, for users.
    title: String,
    kind: String,
    state: Mutex<State>,
    undecodable: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The instant of the last complete list, event or bookmark; none before the first list.
    heard: Option<Instant>,
    /// The reason why the list or watch fails at present.
    trouble: Option<String>,
}

/// A problem of a watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Complaint {
    /// The list or the watch fails.
    #[error("{title} fails: {trouble}")]
    Fails {
        /// The title of the watch.
        title: String,
        /// The reason.
        trouble: String,
    },
    /// The API server has reported nothing for too long.
    #[error("{title} lags: no event for {seconds} s")]
    Lags {
        /// The title of the watch.
        title: String,
        /// The time since the last report.
        seconds: u64,
    },
    /// Objects do not decode.
    #[error("{count} of kind {kind} cannot be read and are treated as deleted")]
    Unreadable {
        /// Their kind.
        kind: String,
        /// Their number.
        count: usize,
    },
    /// The watch has two problems.
    #[error("{}, {}", _0[0], _0[1])]
    Both(Box<[Complaint; 2]>),
}

impl fmt::Debug for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.title)
    }
}

impl Health {
    pub(crate) fn new(title: String, kind: &str) -> Self {
        Self(Arc::new(Inner {
            title,
            kind: kind.to_owned(),
            state: Mutex::default(),
            undecodable: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn heard(&self) {
        let mut state = self.state();
        state.heard = Some(Instant::now());
        state.trouble = None;
    }

    /// Records that the API server serves the watch again. The age stays: the watch lags until data arrives.
    pub(crate) fn opened(&self) {
        self.state().trouble = None;
    }

    pub(crate) fn failed(&self, why: &str) {
        self.state().trouble = Some(why.to_owned());
    }

    pub(crate) fn undecodable(&self, count: usize) {
        self.0.undecodable.store(count, Ordering::Relaxed);
    }

    /// Returns the time since the API server last reported the state; none before the first list.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.state().heard.map(|heard| heard.elapsed())
    }

    /// Returns the problem of the watch, for users; none before the first list, which readiness
    /// waits for.
    #[must_use]
    pub fn complaint(&self) -> Option<Complaint> {
        let title = || self.0.title.clone();
        let state = self.state();
        let age = state.heard?.elapsed();
        let watch = match &state.trouble {
            Some(trouble) => Some(Complaint::Fails {
                title: title(),
                trouble: trouble.clone(),
            }),
            None => (age > LAGS).then(|| Complaint::Lags {
                title: title(),
                seconds: age.as_secs(),
            }),
        };
        let count = self.0.undecodable.load(Ordering::Relaxed);
        let unreadable = (count > 0).then(|| Complaint::Unreadable {
            kind: self.0.kind.clone(),
            count,
        });
        match (watch, unreadable) {
            (Some(one), Some(other)) => Some(Complaint::Both(Box::new([one, other]))),
            (one, other) => one.or(other),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

/// The ages of the watches per kind: the oldest watch counts, as long as the watches run.
#[derive(Clone, Default)]
pub struct Ages(Arc<Mutex<Vec<Weak<Inner>>>>);

impl fmt::Debug for Ages {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.all()).finish()
    }
}

impl Ages {
    /// The name of the metric, without that of the product, and its help.
    pub const METRIC: (&str, &str) = (
        "watch_age_seconds",
        "Seconds since the last event, bookmark or list of the watch of a kind",
    );

    /// Adds a watch, until all clones of its health are dropped.
    pub fn add(&self, health: &Health) {
        let mut known = self.0.lock();
        known.retain(|one| one.strong_count() > 0);
        known.push(Arc::downgrade(&health.0));
    }

    /// Returns the problems of the watches, for users.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let all = self.all();
        let complaints = all.iter().filter_map(Health::complaint);
        complaints.map(|complaint| complaint.to_string()).collect()
    }

    fn all(&self) -> Vec<Health> {
        let known = self.0.lock();
        known.iter().filter_map(Weak::upgrade).map(Health).collect()
    }
}

#[cfg(feature = "metrics")]
impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut ages = std::collections::BTreeMap::<String, f64>::new();
        for health in self.all().iter() {
            if let Some(age) = health.age() {
                let known = ages.entry(health.0.kind.clone()).or_default();
                *known = known.max(age.as_secs_f64());
            }
        }
        let (name, help) = Self::METRIC;
        let gauge = ConstGauge::new(0.0);
        let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        for (kind, age) in ages {
            let labels = [("kind", kind)];
            ConstGauge::new(age).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn opened_watch_without_data_still_lags() {
        let health = Health::new("the watch of Role".to_owned(), "Role");
        health.heard();
        health.failed("too many requests (429)");
        let complaint = health.complaint();
        assert!(matches!(complaint, Some(Complaint::Fails { .. })));
        tokio::time::advance(LAGS).await;
        health.opened();
        assert_eq!(health.complaint(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let complaint = health.complaint();
        assert!(matches!(complaint, Some(Complaint::Lags { .. })));
    }
}
