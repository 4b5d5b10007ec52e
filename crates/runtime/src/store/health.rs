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
    pub fn complaint(&self) -> Option<String> {
        let (title, kind) = (&self.0.title, &self.0.kind);
        let state = self.state();
        let age = state.heard?.elapsed();
        let mut said = Vec::new();
        if let Some(trouble) = &state.trouble {
            said.push(format!("{title} fails: {trouble}"));
        } else if age > LAGS {
            said.push(format!(
                "{title} lags: nothing heard for {} s",
                age.as_secs()
            ));
        }
        let undecodable = self.0.undecodable.load(Ordering::Relaxed);
        if undecodable > 0 {
            said.push(format!(
                "{undecodable} of kind {kind} cannot be read and count as gone"
            ));
        }
        (!said.is_empty()).then(|| said.join(", "))
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
        "How long ago the watch of a kind was last heard of: an event, a bookmark or a list",
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
        self.all().iter().filter_map(Health::complaint).collect()
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
