//! Events for `kubectl describe`, published behind the back of whoever causes them, so that nobody
//! waits for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::metrics::Metrics;

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

/// Publishes them, through the one recorder of the process: its memory of what it said is what
/// turns repetitions into a series.
pub struct Publisher {
    receiver: mpsc::Receiver<(ObjectReference, Event)>,
    client: Client,
    reporter: Reporter,
}

/// After so many events the recorder's memory is given up: it keeps each of them for six minutes,
/// and a burst of grants would fill it with what never repeats.
const MEMORY: usize = 128;

/// The longest note that the API server takes, in bytes.
const NOTE_BYTES: usize = 1_024;

/// The note, cut where it is longer than the API server takes; the condition has all of it.
fn shortened(mut note: String) -> String {
    const CUT: char = '…';
    if note.len() > NOTE_BYTES {
        note.truncate(note.floor_char_boundary(NOTE_BYTES - CUT.len_utf8()));
        note.push(CUT);
    }
    note
}

/// Both ends; `controller` is who the events come from, `instance` which of its processes.
pub fn events(
    client: Client,
    controller: &str,
    instance: Option<String>,
    metrics: Metrics,
) -> (Events, Publisher) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let reporter = Reporter {
        controller: controller.to_owned(),
        instance,
    };
    let publisher = Publisher {
        receiver,
        client,
        reporter,
    };
    (Events { sender, metrics }, publisher)
}

impl Events {
    /// Leaves an event to be published; drops it if too many wait.
    pub fn publish(&self, about: ObjectReference, event: Event) {
        if self.sender.try_send((about, event)).is_err() {
            self.metrics.event_dropped();
        }
    }
}

impl Publisher {
    /// Publishes until every [`Events`] is dropped and none waits.
    pub async fn run(mut self) {
        let recorder = || Recorder::new(self.client.clone(), self.reporter.clone());
        let mut current = recorder();
        let mut published = 0_usize;
        while let Some((about, mut event)) = self.receiver.recv().await {
            published += 1;
            if published.is_multiple_of(MEMORY) {
                current = recorder();
            }
            event.note = event.note.map(shortened);
            let published = tokio::time::timeout(TIMEOUT, current.publish(&event, &about));
            match published.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(reason = event.reason, %error, "failed to publish an event");
                }
                Err(_) => {
                    tracing::warn!(reason = event.reason, "publishing an event took too long")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters_and_only_if_it_is_too_long() {
        let fits = "ä".repeat(NOTE_BYTES / 2);
        assert_eq!(shortened(fits.clone()), fits);
        let cut = shortened(format!("x{fits}"));
        assert!(cut.len() <= NOTE_BYTES && cut.ends_with("ä…"), "{cut}");
    }
}
