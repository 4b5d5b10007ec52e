//! Events for `kubectl describe`, published behind the back of whoever causes them, so that nobody
//! waits for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::recorder::{Event, Recorder};

/// How many events may wait.
const CAPACITY: usize = 1_024;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where events are left to be published.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<(ObjectReference, Event)>,
    metrics: Metrics,
}

/// Where events are left as long as somebody else has [`Events`], whom this does not keep waiting.
#[derive(Clone, Debug)]
pub(crate) struct WeakEvents {
    sender: mpsc::WeakSender<(ObjectReference, Event)>,
    metrics: Metrics,
}

impl WeakEvents {
    pub(crate) fn upgrade(&self) -> Option<Events> {
        let sender = self.sender.upgrade()?;
        let metrics = self.metrics.clone();
        Some(Events { sender, metrics })
    }
}

/// Publishes them, through the one recorder of the process: its memory of what it said is what
/// turns repetitions into a series.
pub(crate) struct Publisher {
    receiver: mpsc::Receiver<(ObjectReference, Event)>,
}

/// Both ends.
pub(crate) fn events(metrics: Metrics) -> (Events, Publisher) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (Events { sender, metrics }, Publisher { receiver })
}

impl Events {
    pub(crate) fn downgrade(&self) -> WeakEvents {
        WeakEvents {
            sender: self.sender.downgrade(),
            metrics: self.metrics.clone(),
        }
    }

    /// Leaves an event to be published; drops it if too many wait.
    pub fn publish(&self, about: ObjectReference, event: Event) {
        if self.sender.try_send((about, event)).is_err() {
            self.metrics.event_dropped();
        }
    }
}

impl Publisher {
    /// Publishes by `recorder` until every [`Events`] is dropped and none waits.
    pub(crate) async fn run(mut self, recorder: Recorder) {
        while let Some((about, event)) = self.receiver.recv().await {
            let published = tokio::time::timeout(TIMEOUT, recorder.publish(&event, &about));
            match published.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error = crate::with_causes(&error);
                    tracing::warn!(reason = event.reason, error, "failed to publish an event");
                }
                Err(_) => {
                    tracing::warn!(reason = event.reason, "publishing an event took too long")
                }
            }
        }
    }
}
