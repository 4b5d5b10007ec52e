//! What a pass has changed, as events for `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use oz_core::controller::Transition;
use oz_runtime::{Event, EventType};

/// Where passes leave events.
#[derive(Clone)]
pub(crate) struct Events(pub(crate) oz_runtime::Events);

impl Events {
    /// Leaves an event to be published; drops it if too many wait.
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
