//! Says aloud that the clock of this process's node is wrong: a metric, a log line, an event. Nothing
//! else comes of it, since oz goes by the API server's clock; but a node whose clock is wrong is worth
//! knowing of, and so is a control plane whose clocks differ.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use oz_engine::Clock;
use oz_engine::clock::NOTABLE_SKEW;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
        let reporter = Reporter {
            controller: "oz".to_owned(),
            instance: Some(self.replica.clone()),
        };
        let recorder = Recorder::new(client, reporter);
        let mut told = false;
        loop {
            let skew = self.clock.skew();
            self.skew.set(skew.as_secs_f64());
            let wrong = skew.abs() > NOTABLE_SKEW;
            if wrong && !told {
                self.alarm(&recorder, skew).await;
            }
            told = wrong;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn alarm(&self, recorder: &Recorder, skew: SignedDuration) {
        let note = note(self.component, &self.replica, skew);
        tracing::warn!(skew_seconds = skew.as_secs_f64(), "{note}");
        let event = Event {
            type_: EventType::Warning,
            reason: "ClockSkewed".to_owned(),
            note: Some(note),
            action: "Check".to_owned(),
            secondary: None,
        };
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.replica.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = recorder.publish(&event, &pod).await {
            tracing::debug!(%error, "failed to publish an event");
        }
    }
}

fn note(component: &str, replica: &str, skew: SignedDuration) -> String {
    let direction = if skew.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    format!(
        "the clock of {component} {replica} is {:.0} s {direction} the API server's. Grants go by the \
         API server's and end on time; set the node's clock right (NTP), or that of the control plane",
        skew.abs().as_secs_f64()
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
