//! The evidence: the input of a verification. The digest of each record is checked here, while its text is available,
//! so that the texts of a hundred thousand records need not be kept.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use oz_api::labels;
use serde_json::Value;

use super::super::checkpoint::Checkpoint;
use super::super::event::{labels_of, name_of};
use super::super::head::Medium;
use super::super::{Action, Entry, Link, Published, Shortening};
use super::report::{Fault, Location, Problem};

/// The items that were read.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub(super) items: Vec<Item>,
    pub(super) checkpoints: Vec<(Location, Checkpoint)>,
    pub(super) media: BTreeSet<Medium>,
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<String>,
    /// The keys that records declare as created, each with the voucher of the preceding key.
    pub(super) keys: Vec<Published>,
    /// The records that declare that the trail was shortened.
    pub(super) shortened: Vec<Shortened>,
}

/// A declaration that the trail was shortened. It applies if its signature is valid.
#[derive(Clone, Debug)]
pub(super) struct Shortened {
    pub(super) digest: String,
    pub(super) signature: String,
    pub(super) time: Timestamp,
    pub(super) before: Timestamp,
    pub(super) message: String,
}

/// The fields of a record that its chain requires.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) place: Location,
    pub(super) medium: Medium,
    pub(super) link: Link,
    pub(super) time: Timestamp,
    /// The details of a first record, some of which name other chains.
    pub(super) mentions: BTreeMap<String, String>,
    /// The address of the unproven caller of the record, if it has one, and the number of events that the record
    /// states.
    pub(super) unproven: Option<(String, u64)>,
}

impl Evidence {
    /// Adds a log, line by line. The last line may be incomplete if its writer was killed. Other output of the process
    /// may occur between the records, as in the output of `kubectl logs`.
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

    /// Adds a line. Returns whether the line belongs to the trail, or was written as a part of it.
    fn line(&mut self, source: &str, number: usize, line: &str) -> bool {
        let place = Location {
            source: source.to_owned(),
            line: Some(number),
        };
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            if !line.starts_with('{') {
                return false;
            }
            // If more than half a line is missing, the chain has a gap.
            self.notes.push(format!(
                "{place}: the line is not JSON; a killed process may leave half a line"
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

    /// Declares that the AuditEvents of the cluster are part of the evidence, even if there are none.
    pub fn objects(&mut self) {
        self.media.insert(Medium::Objects);
    }

    /// Adds an AuditEvent in the form in which the API server returned it.
    pub fn object(&mut self, object: &Value) {
        self.objects();
        let name = object["metadata"]["name"].as_str();
        let place = Location {
            source: match name {
                Some(name) => format!("AuditEvent {name}"),
                None => "AuditEvent without a name".to_owned(),
            },
            line: None,
        };
        let entry = self.entry(place.clone(), Medium::Objects, object["spec"].clone());
        let Some(entry) = entry else { return };
        let found = |key: &str| object["metadata"]["labels"][key].as_str();
        let mut expected = labels_of(&entry);
        // The name that the digest covers, which may be a former name of the action.
        if let Some(action) = object["spec"]["action"].as_str() {
            expected.insert(labels::AUDIT_KIND.to_owned(), action.to_owned());
        }
        let wrong: Vec<String> = expected
            .into_iter()
            .filter(|(key, value)| found(key) != Some(value))
            .map(|(key, value)| format!("label {key} is not {value}"))
            .chain(
                (Some(name_of(&entry).as_str()) != name)
                    .then(|| format!("it is not named {}", name_of(&entry))),
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

    /// Adds a checkpoint from a ConfigMap.
    pub fn checkpoint(&mut self, source: &str, text: &str) {
        let place = Location {
            source: source.to_owned(),
            line: None,
        };
        match serde_json::from_str::<Value>(text) {
            Ok(value) => self.checkpoint_at(place, &value),
            Err(_) => self.problem(place, "the checkpoint is not JSON"),
        }
    }

    fn checkpoint_at(&mut self, place: Location, value: &Value) {
        match serde_json::from_value(value.clone()) {
            Ok(checkpoint) => self.checkpoints.push((place, checkpoint)),
            Err(error) => self.problem(place, &format!("not a checkpoint: {error}")),
        }
    }

    /// Adds a line of a file to which AuditEvents were exported, each as its spec only: the name and the labels are not
    /// verified. Returns the entry, if the line is one.
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
            Shortening::cutoff(&entry.link.writer.component, record),
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
