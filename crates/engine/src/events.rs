//! The changes of a pass, as events for `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use oz_core::controller::Transition;
use oz_runtime::{Event, EventType};

/// The sender of the events of passes.
#[derive(Clone)]
pub(crate) struct Events(pub(crate) oz_runtime::Events);

impl Events {
    /// Queues an event for publication, or drops it if the queue is full.
    pub(crate) fn publish(&self, about: ObjectReference, transition: Transition) {
        let event = Event {
            type_: if transition.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: transition.reason.to_owned(),
            note: Some(transition.note),
            action: transition.action.to_owned(),
            secondary: None,
        };
        self.0.publish(about, event);
    }
}
