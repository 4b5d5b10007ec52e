//! Events (`events.k8s.io/v1`), with repetitions told as a series.
//!
//! kube-runtime has a recorder too; it is all that this library would need of it, and comes with twenty crates
//! (docs/adr/0019). This one also remembers a bounded number, and begins anew when what it goes on with has
//! been removed.

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

/// How long the same thing may be silent and is still one series.
const SERIES_PAUSE: SignedDuration = SignedDuration::from_mins(6);
/// How many series are remembered; the one that has been silent for longest is forgotten first.
const MEMORY: usize = 128;
/// The longest note that the API server takes, in bytes.
const NOTE_BYTES: usize = 1_024;
/// The longest name of an object.
const NAME_BYTES: usize = 253;

/// Something to tell of an object, for `kubectl describe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whether it is a warning.
    pub type_: EventType,
    /// Why it is told, in one word of `CamelCase`.
    pub reason: String,
    /// What there is to say; cut where it is longer than the API server takes.
    pub note: Option<String>,
    /// What was done, in one word of `CamelCase`.
    pub action: String,
    /// A second object that this is about.
    pub secondary: Option<ObjectReference>,
}

/// Whether an event is a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It tells what happened.
    Normal,
    /// Somebody should look at it.
    Warning,
}

/// Publishes events. Clones share what they remember: keep one of a process.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    controller: Arc<str>,
    instance: Arc<str>,
    series: Arc<Mutex<VecDeque<Series>>>,
}

/// What was told, as long as telling it again would be a repetition.
struct Series {
    /// Without its note, which may differ each time.
    event: Event,
    regarding: ObjectReference,
    name: String,
    count: i32,
    last: Timestamp,
}

impl Recorder {
    /// Publishes as `controller`, of which this process is `instance` if there may be several.
    pub fn new(client: Client, controller: &str, instance: Option<&str>) -> Self {
        Self {
            client,
            controller: controller.into(),
            instance: instance.unwrap_or(controller).into(),
            series: Arc::default(),
        }
    }

    /// Publishes one about `regarding`, in its namespace; in `default` if it has none.
    ///
    /// # Errors
    /// When the API server does not take it.
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
                // Removed, as every event is after a while: a series begins anew.
                Err(Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let new = self.event(&event, regarding, now);
        let name = new.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &new).await?;
        self.remember(event, regarding, name, now);
        Ok(())
    }

    /// The name of the event that was published last about the same thing, and how often it has been seen
    /// with this time.
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

    fn event(&self, event: &Event, regarding: &ObjectReference, now: Timestamp) -> ApiEvent {
        let about = regarding.name.as_deref().unwrap_or(&self.controller);
        let type_ = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        ApiEvent {
            metadata: ObjectMeta {
                name: Some(event_name(about, now)),
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

/// A name that no other event of the object has, and that is short enough whatever the object's is.
fn event_name(about: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let mut name = about.to_owned();
    truncate(&mut name, NAME_BYTES - suffix.len());
    // What is before a dot ends with a letter or a digit.
    let kept = name.trim_end_matches(['.', '-']).len();
    name.truncate(kept);
    name + &suffix
}

/// The note, cut where it is longer than the API server takes; the condition has all of it.
fn shortened(mut note: String) -> String {
    const CUT: char = '…';
    if note.len() > NOTE_BYTES {
        truncate(&mut note, NOTE_BYTES - CUT.len_utf8());
        note.push(CUT);
    }
    note
}

/// Cuts between two characters, so that at most `bytes` are left.
fn truncate(text: &mut String, bytes: usize) {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests;
