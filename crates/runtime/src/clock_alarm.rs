//! Says aloud that the clock of this process's node is wrong: a metric, a log line, an event. Nothing
//! else comes of it, since oz goes by the API server's clock; but a node whose clock is wrong is worth
//! knowing of, and so is a control plane whose clocks differ.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::Warnings;
use crate::clock::{Clock, NOTABLE_SKEW, skew_in_words};

/// How often to look.
const LOOK: Duration = Duration::from_secs(5);

/// Watches the clock of one replica of one component.
pub struct ClockAlarm {
    clock: Arc<dyn Clock>,
    skew: Gauge<f64, AtomicU64>,
    component: &'static str,
    namespace: String,
    replica: String,
}

impl ClockAlarm {
    /// One that has said nothing yet.
    pub fn new(clock: impl Clock, component: &'static str, namespace: &str, replica: &str) -> Self {
        Self {
            clock: Arc::new(clock),
            skew: Gauge::default(),
            component,
            namespace: namespace.to_owned(),
            replica: replica.to_owned(),
        }
    }

    /// Adds the metric, where the engine does not have it.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_clock_skew_seconds",
            "How far the local clock is ahead of the API server's, which counts",
            self.skew.clone(),
        );
    }

    /// Looks now and then, as long as the process lasts.
    pub async fn run(self, client: Client) {
        let warnings = Warnings::new(client, &self.namespace, &self.replica);
        let mut told = false;
        loop {
            let skew = self.clock.skew();
            self.skew.set(skew.as_secs_f64());
            let wrong = skew.abs() > NOTABLE_SKEW;
            if wrong && !told {
                self.alarm(&warnings, skew).await;
            }
            told = wrong;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn alarm(&self, warnings: &Warnings, skew: SignedDuration) {
        let note = note(self.component, &self.replica, skew);
        tracing::warn!(skew_seconds = skew.as_secs_f64(), "{note}");
        warnings.publish("ClockSkewed", note).await;
    }
}

fn note(component: &str, replica: &str, skew: SignedDuration) -> String {
    format!(
        "the clock of {component} {replica} is {}. Grants go by the API server's and end on time; set \
         the node's clock right (NTP), or that of the control plane",
        skew_in_words(skew)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_says_whose_clock_is_wrong_and_by_how_much() {
        let hour = SignedDuration::from_hours(1);
        let ahead = note("oz-operator", "oz-0", hour);
        assert!(ahead.starts_with("the clock of oz-operator oz-0 is 3600 s ahead of the API"));
        assert!(note("oz-webhook", "oz-1", -hour).contains("3600 s behind the API server's"));
    }
}
