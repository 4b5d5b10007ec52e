//! Warnings about a process itself, as events on its own pod: what `kubectl describe pod` shows to
//! whoever runs oz.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// Publishes the warnings of one replica.
pub struct Warnings {
    recorder: Recorder,
    pod: ObjectReference,
}

impl Warnings {
    /// Those of the pod `replica` in `namespace`.
    pub fn new(client: Client, namespace: &str, replica: &str) -> Self {
        let reporter = Reporter {
            controller: "oz".to_owned(),
            instance: Some(replica.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            pod: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(replica.to_owned()),
                ..ObjectReference::default()
            },
        }
    }

    /// Publishes one, with a reason in `CamelCase`. The log says the same, so one that cannot be
    /// published is let go.
    pub async fn publish(&self, reason: &str, note: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Check".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &self.pod).await {
            tracing::debug!(%error, reason, "failed to publish an event");
        }
    }
}
