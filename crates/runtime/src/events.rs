//! Events for `kubectl describe`. A separate task publishes them, so that the component that causes
//! an event does not wait for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::recorder::{Event, Recorder};

/// The maximum number of waiting events.
const CAPACITY: usize = 1_024;
/// The maximum time for the publication of one event.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The sender of events to publish.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<(ObjectReference, Event)>,
    metrics: Metrics,
}

/// A sender that keeps no queue open: it works as long as an [`Events`] exists, and does not delay
/// the end of the publisher.
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

/// The task that publishes events through the one recorder of the process: the recorder's memory of
/// earlier events turns repetitions into a series.
pub(crate) struct Publisher {
    receiver: mpsc::Receiver<(ObjectReference, Event)>,
}

/// Creates the sender and the publisher.
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

    /// Queues an event for publication, or drops it if the queue is full.
    pub fn publish(&self, about: ObjectReference, event: Event) {
        if self.sender.try_send((about, event)).is_err() {
            self.metrics.event_dropped();
        }
    }
}

impl Publisher {
    /// Publishes with `recorder` until every [`Events`] is dropped and the queue is empty.
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
