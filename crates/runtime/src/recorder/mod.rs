//! Events (`events.k8s.io/v1`), with repetitions as a series.
//!
//! kube-runtime has a recorder too; it is the only part of that library that this crate would need, and it
//! adds twenty crates (docs/adr/0019). This recorder also remembers a bounded number of series, and starts a
//! new series when the event that it continues has been removed.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

/// The maximum pause between two events of one series.
const SERIES_PAUSE: SignedDuration = SignedDuration::from_mins(6);
/// The maximum number of series in memory; the series with the longest pause is removed first.
const MEMORY: usize = 128;
/// The longest note that the API server accepts, in bytes.
const NOTE_BYTES: usize = 1_024;
/// The longest name of an object.
const NAME_BYTES: usize = 253;

/// An event about an object, for `kubectl describe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The type: normal or a warning.
    pub type_: EventType,
    /// The reason, in one word of `CamelCase`.
    pub reason: String,
    /// The message; cut where it is longer than the API server accepts.
    pub note: Option<String>,
    /// The action, in one word of `CamelCase`.
    pub action: String,
    /// A second object that the event is about.
    pub secondary: Option<ObjectReference>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The event reports a change.
    Normal,
    /// The event requires attention.
    Warning,
}

/// The publisher of events. Clones share their memory: use one recorder per process.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    controller: Arc<str>,
    instance: Arc<str>,
    series: Arc<Mutex<VecDeque<Series>>>,
}

/// A published event, as long as an equal event would be a repetition.
struct Series {
    /// The event without its note, which may differ each time.
    event: Event,
    regarding: ObjectReference,
    name: String,
    count: i32,
    last: Timestamp,
}

impl Recorder {
    /// Creates a recorder that publishes as `controller`; this process is its `instance`, if there
    /// may be several.
    pub fn new(client: Client, controller: &str, instance: Option<&str>) -> Self {
        Self {
            client,
            controller: controller.into(),
            instance: instance.unwrap_or(controller).into(),
            series: Arc::default(),
        }
    }

    /// Publishes an event about `regarding`, in its namespace; in `default` if it has none.
    ///
    /// # Errors
    /// When the API server rejects the event.
    pub async fn publish(&self, event: &Event, regarding: &ObjectReference) -> Result<(), Error> {
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let events: Api<ApiEvent> = Api::namespaced(self.client.clone(), namespace);
        let now = Timestamp::now();
        let event = Event {
            note: event.note.clone().map(shortened),
            ..event.clone()
        };
        if let Some((name, count)) = self.repeated(&event, regarding, now) {
            let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
            let series = Patch::Merge(series);
            match events.patch(&name, &PatchParams::default(), &series).await {
                Ok(_) => return Ok(()),
                // Removed, as every event is after a while: a new series starts.
                Err(Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let about = regarding.name.as_deref().unwrap_or(&self.controller);
        let name = event_name(about, now);
        let new = self.event(&event, regarding, name.clone(), now);
        events.create(&PostParams::default(), &new).await?;
        self.remember(event, regarding, name, now);
        Ok(())
    }

    /// Returns the name of the last published event that this one repeats, and the number of occurrences
    /// including this one.
    fn repeated(
        &self,
        event: &Event,
        regarding: &ObjectReference,
        now: Timestamp,
    ) -> Option<(String, i32)> {
        let mut series = self.series();
        series.retain(|series| now.duration_since(series.last) < SERIES_PAUSE);
        let known = series.iter().position(|one| one.is_of(event, regarding))?;
        let mut known = series.remove(known)?;
        known.count = known.count.saturating_add(1);
        known.last = now;
        let repeated = (known.name.clone(), known.count);
        series.push_back(known);
        Some(repeated)
    }

    fn remember(&self, event: Event, regarding: &ObjectReference, name: String, now: Timestamp) {
        let mut series = self.series();
        series.retain(|series| !series.is_of(&event, regarding));
        if series.len() == MEMORY {
            series.pop_front();
        }
        series.push_back(Series {
            event: Event {
                note: None,
                ..event
            },
            regarding: regarding.clone(),
            name,
            count: 1,
            last: now,
        });
    }

    fn event(
        &self,
        event: &Event,
        regarding: &ObjectReference,
        name: String,
        now: Timestamp,
    ) -> ApiEvent {
        let type_ = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        ApiEvent {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            type_: Some(type_.to_owned()),
            reason: Some(event.reason.clone()),
            action: Some(event.action.clone()),
            note: event.note.clone(),
            regarding: Some(regarding.clone()),
            related: event.secondary.clone(),
            reporting_controller: Some(self.controller.as_ref().to_owned()),
            reporting_instance: Some(self.instance.as_ref().to_owned()),
            event_time: Some(MicroTime(now)),
            ..ApiEvent::default()
        }
    }

    fn series(&self) -> MutexGuard<'_, VecDeque<Series>> {
        self.series.lock()
    }
}

impl Series {
    fn is_of(&self, event: &Event, regarding: &ObjectReference) -> bool {
        let said = &self.event;
        said.type_ == event.type_
            && said.reason == event.reason
            && said.action == event.action
            && said.secondary == event.secondary
            && self.regarding == *regarding
    }
}

/// Returns a name that no other event of the object has, and that is short enough for any name of
/// the object.
fn event_name(about: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let mut name = about.to_owned();
    truncate(&mut name, NAME_BYTES - suffix.len());
    // The part before a dot must end with a letter or a digit.
    let kept = name.trim_end_matches(['.', '-']).len();
    name.truncate(kept);
    name + &suffix
}

/// Returns the note, cut where it is longer than the API server accepts; the condition contains the
/// whole text.
fn shortened(mut note: String) -> String {
    const CUT: char = '…';
    if note.len() > NOTE_BYTES {
        truncate(&mut note, NOTE_BYTES - CUT.len_utf8());
        note.push(CUT);
    }
    note
}

/// Cuts the text between two characters, so that at most `bytes` remain.
fn truncate(text: &mut String, bytes: usize) {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests;
