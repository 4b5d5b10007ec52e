//! What was read, in the form in which it is judged. Each record's own digest is checked here,
//! while its text is at hand, so that a hundred thousand of them need not be kept.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::super::checkpoint::Checkpoint;
use super::super::event::{labels_of, name_of};
use super::super::head::Medium;
use super::super::{Action, Entry, Link, Published, Shortening};
use super::report::{Fault, Location, Problem};

/// What was read back.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub(super) items: Vec<Item>,
    pub(super) checkpoints: Vec<(Location, Checkpoint)>,
    pub(super) media: BTreeSet<Medium>,
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<String>,
    /// Keys that records say were made, with the voucher of the key before.
    pub(super) keys: Vec<Published>,
    /// Records that say that the trail was shortened.
    pub(super) shortened: Vec<Shortened>,
}

/// That the trail was shortened, which counts if the signature holds.
#[derive(Clone, Debug)]
pub(super) struct Shortened {
    pub(super) digest: String,
    pub(super) signature: String,
    pub(super) time: Timestamp,
    pub(super) before: Timestamp,
    pub(super) message: String,
}

/// What of a record matters to its chain.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) place: Location,
    pub(super) medium: Medium,
    pub(super) link: Link,
    pub(super) time: Timestamp,
    /// Details of a first record, some of which name other chains.
    pub(super) mentions: BTreeMap<String, String>,
    /// The address of an unproven caller, if it is of one, and how often it says that something happened.
    pub(super) unproven: Option<(String, u64)>,
}

impl Evidence {
    /// A log, line by line. The last line may be torn: its writer was killed. What a process says
    /// besides may stand in between, as in what `kubectl logs` gives.
    pub fn log(&mut self, source: &str, text: &str) {
        self.media.insert(Medium::Log);
        let mut others = 0_u64;
        for (index, line) in text.split('\n').enumerate() {
            if !line.trim().is_empty() && !self.line(source, index + 1, line) {
                others += 1;
            }
        }
        if others > 0 {
            self.notes.push(format!(
                "{source}: {others} lines are neither records nor checkpoints"
            ));
        }
    }

    /// Whether the line is of the trail, or was to be.
    fn line(&mut self, source: &str, number: usize, line: &str) -> bool {
        let place = Location {
            source: source.to_owned(),
            line: Some(number),
        };
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            if !line.starts_with('{') {
                return false;
            }
            // If it was more than half a line, the chain has a gap.
            self.notes.push(format!(
                "{place}: the line is no JSON; a killed process may leave half a line"
            ));
            return true;
        };
        if let Some(checkpoint) = value.get("checkpoint") {
            self.checkpoint_at(place, checkpoint);
            return true;
        }
        if value.get("digest").is_none() {
            return false;
        }
        self.entry(place, Medium::Log, value);
        true
    }

    /// Says that the AuditEvents of the cluster are among what is judged, even if there are none.
    pub fn objects(&mut self) {
        self.media.insert(Medium::Objects);
    }

    /// An AuditEvent, as the API server gave it.
    pub fn object(&mut self, object: &Value) {
        self.objects();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let place = Location {
            source: format!("AuditEvent {name}"),
            line: None,
        };
        let found = self.entry(place.clone(), Medium::Objects, object["spec"].clone());
        let Some(entry) = found else { return };
        let labels = |key: &str| object["metadata"]["labels"][key].as_str();
        let wrong: Vec<String> = labels_of(&entry)
            .into_iter()
            .filter(|(key, value)| labels(key) != Some(value))
            .map(|(key, value)| format!("label {key} is not {value}"))
            .chain(
                (name_of(&entry) != name).then(|| format!("it is not named {}", name_of(&entry))),
            )
            .collect();
        if !wrong.is_empty() {
            self.problems.push(Problem {
                writer: Some(entry.link.writer),
                seq: Some(entry.link.seq),
                fault: Fault::Relabelled,
                place: Some(place),
                message: wrong.join(", "),
            });
        }
    }

    /// A checkpoint, as a ConfigMap keeps it.
    pub fn checkpoint(&mut self, source: &str, text: &str) {
        let place = Location {
            source: source.to_owned(),
            line: None,
        };
        match serde_json::from_str::<Value>(text) {
            Ok(value) => self.checkpoint_at(place, &value),
            Err(_) => self.problem(place, "the checkpoint is no JSON"),
        }
    }

    fn checkpoint_at(&mut self, place: Location, value: &Value) {
        match serde_json::from_value(value.clone()) {
            Ok(checkpoint) => self.checkpoints.push((place, checkpoint)),
            Err(error) => self.problem(place, &format!("not a checkpoint: {error}")),
        }
    }

    /// A line of a file to which AuditEvents were written, each as its spec alone: name and labels are not among
    /// what is judged. The entry, if it is one.
    pub fn exported(&mut self, source: &str, line: usize, value: Value) -> Option<Entry> {
        let place = Location {
            source: source.to_owned(),
            line: Some(line),
        };
        self.objects();
        self.entry(place, Medium::Objects, value)
    }

    fn entry(&mut self, place: Location, medium: Medium, value: Value) -> Option<Entry> {
        let digest = Entry::digest_of(&value);
        let entry: Entry = match serde_json::from_value(value) {
            Ok(entry) => entry,
            Err(error) => {
                self.problem(place, &format!("not a record: {error}"));
                return None;
            }
        };
        if digest != entry.link.digest {
            self.problems.push(Problem {
                writer: Some(entry.link.writer.clone()),
                seq: Some(entry.link.seq),
                fault: Fault::Altered,
                place: Some(place.clone()),
                message: format!(
                    "it states the digest {} and has {digest}",
                    entry.link.digest
                ),
            });
        }
        let mentions = if entry.record.action == Action::WriterStarted && entry.link.seq == 1 {
            entry.record.details.clone()
        } else {
            BTreeMap::new()
        };
        let record = &entry.record;
        if record.action == Action::KeyRotated
            && let Some(public_key) = record.details.get("publicKey")
        {
            self.keys.push(Published {
                public_key: public_key.clone(),
                vouched: record.details.get("vouched").cloned(),
                writer: record.details.get("writer").cloned(),
            });
        }
        if let (Some(before), Some(signature)) = (
            Shortening::of(&entry.link.writer.component, record),
            &entry.link.signature,
        ) {
            self.shortened.push(Shortened {
                digest,
                signature: signature.clone(),
                time: record.time,
                before,
                message: record.message.clone(),
            });
        }
        let many = record.repeated.as_ref().map_or(1, |several| several.count);
        let unproven = record.unproven_peer().map(|peer| (peer.to_owned(), many));
        self.items.push(Item {
            unproven,
            place,
            medium,
            link: entry.link.clone(),
            time: record.time,
            mentions,
        });
        Some(entry)
    }

    fn problem(&mut self, place: Location, message: &str) {
        self.problems.push(Problem {
            writer: None,
            seq: None,
            fault: Fault::Unreadable,
            place: Some(place),
            message: message.to_owned(),
        });
    }
}
