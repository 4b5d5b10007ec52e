//! What people and dashboards are told of upkeep: log, event, metric.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

use super::Manager;
use crate::{metrics::Metrics, registration::apply::Change};

pub(super) struct Report {
    fingerprint: Arc<str>,
    recorder: Recorder,
    metrics: Metrics,
}

impl Report {
    pub(super) fn new(manager: &Manager) -> Self {
        Self {
            fingerprint: manager.declared.fingerprint.clone(),
            recorder: manager.recorder.clone(),
            metrics: manager.metrics.clone(),
        }
    }

    /// Until when the `leaf` or the `ca` lasts.
    pub(super) fn expiry(&self, name: &'static str, until: Timestamp, now: Timestamp) {
        self.metrics
            .expires_in(name, until.duration_since(now).as_secs_f64());
    }

    /// A configuration was not as declared, and now is. By then it is mended: failing to tell
    /// of it is no failure.
    pub(super) async fn repaired(&self, change: &Change) {
        self.metrics.repaired(change.kind);
        let what = change.path.as_deref().unwrap_or("the whole object");
        let name = self.fingerprint.as_ref();
        tracing::warn!(kind = change.kind, name, what, "put the registration right");
        let event = Event {
            type_: EventType::Warning,
            reason: "RegistrationRepaired".to_owned(),
            note: Some(format!(
                "{what} had been changed or deleted, and was put right"
            )),
            action: "Repair".to_owned(),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some(change.kind.to_owned()),
            name: Some(name.to_owned()),
            uid: change.uid.clone(),
            ..ObjectReference::default()
        };
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            tracing::debug!(%error, "failed to publish an event");
        }
    }
}
