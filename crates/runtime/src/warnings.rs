//! Warnings about a process itself, as events on its own pod, which `kubectl describe pod` shows.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use crate::{Event, EventType, Recorder, with_causes};

/// The publisher of the warnings of one replica.
#[derive(Clone)]
pub struct Warnings {
    recorder: Recorder,
    pod: ObjectReference,
}

impl Warnings {
    /// Creates the publisher for the pod `replica` of `product` in `namespace`.
    pub fn new(client: Client, product: &str, namespace: &str, replica: &str) -> Self {
        Self {
            recorder: Recorder::new(client, product, Some(replica)),
            pod: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(replica.to_owned()),
                ..ObjectReference::default()
            },
        }
    }

    /// Publishes a warning, with a reason in `CamelCase`. The log contains the same warning, so a
    /// failure to publish it has no further effect.
    pub async fn publish(&self, reason: &str, note: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Check".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &self.pod).await {
            tracing::debug!(
                error = with_causes(&error),
                reason,
                "failed to publish an event"
            );
        }
    }
}
