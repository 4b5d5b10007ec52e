//! A written chain, and functions to manipulate it.

use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use serde_json::Value;

use crate::verify::{Evidence, Fault, Report, Terms, verify};
use crate::{
    Action, AuditKey, Chain, Checkpoint, Decision, Entry, Medium, PodRef, Record, RequestRef,
    Trust, Writer,
};

pub(super) const BOTH: [Medium; 2] = [Medium::Log, Medium::Objects];

pub(super) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::constant(1_790_000_000 + seconds, 123_456_789)
}

pub(super) fn key() -> AuditKey {
    AuditKey::new(&[7; 32])
}

pub(super) fn record(number: i64) -> Record {
    Record {
        user: Some(Requester {
            user: format!("user-{number}@example.com"),
            groups: vec!["devs".to_owned()],
            ..Requester::default()
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("debug-{number}"),
            uid: format!("uid-{number}"),
        },
        template: "shell".to_owned(),
        template_digest: Some("sha256:abc".to_owned()),
        pod: Some(PodRef {
            name: "web-0".to_owned(),
            uid: "pod-uid".to_owned(),
            container: None,
        }),
        until: Some(timestamp(number) + SignedDuration::from_mins(5)),
        ..Record::about(
            timestamp(number),
            Action::AccessGranted,
            Decision::Allow,
            &format!("uid-{number}"),
            "Success",
            "may use it",
        )
    }
    .detail("reason", "INC-7")
}

/// Returns the entries of a written chain. The first entry records the start of the writer, and is the only signed one.
pub(super) fn written(replica: &str, records: i64) -> Vec<Entry> {
    written_at(replica, (1..=records).map(|number| number * 10))
}

/// Writes a chain with a record at each of these milliseconds.
pub(super) fn written_at(replica: &str, millis: impl IntoIterator<Item = i64>) -> Vec<Entry> {
    let writer = Writer::new("oz-operator", replica, timestamp(0), 1);
    let (mut chain, first) = Chain::begin(writer, timestamp(0), &[], &key());
    let mut entries = vec![first];
    for (number, millis) in (1..).zip(millis) {
        let time = timestamp(0) + SignedDuration::from_millis(millis);
        let record = Record {
            time,
            ..record(number)
        };
        entries.push(chain.append(record, &key()));
    }
    entries
}

/// Returns the entry with a change of its content or position, by an attacker who cannot sign.
pub(super) fn forged(mut entry: Entry, change: impl FnOnce(&mut Entry)) -> Entry {
    change(&mut entry);
    entry.link.signature = None;
    entry.link.digest = Entry::digest_of(&entry.value());
    entry
}

pub(super) fn lines(entries: &[Entry]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| entry.value().to_string())
        .collect()
}

/// Returns the checkpoint at an entry.
pub(super) fn checkpoint(entry: &Entry) -> Checkpoint {
    Checkpoint::sign(entry.head(&BOTH), &key())
}

pub(super) fn terms() -> Terms {
    Terms {
        trust: Trust::pinned([key().public().as_str()]).unwrap(),
        ..Terms::default()
    }
}

/// Returns the report about a log and a checkpoint that is stored elsewhere.
pub(super) fn judged(lines: &[String], checkpoint: Option<&Checkpoint>) -> Report {
    let mut evidence = Evidence::default();
    evidence.log("operator.jsonl", &lines.join("\n"));
    if let Some(checkpoint) = checkpoint {
        let text = serde_json::to_string(checkpoint).unwrap();
        evidence.checkpoint("ConfigMap oz-system/oz-audit-checkpoints", &text);
    }
    verify(evidence, &terms())
}

/// Returns the report about objects and checkpoints.
pub(super) fn judged_objects(
    objects: &[Value],
    checkpoints: &[Checkpoint],
    terms: &Terms,
) -> Report {
    let mut evidence = Evidence::default();
    evidence.objects();
    for object in objects {
        evidence.object(object);
    }
    for checkpoint in checkpoints {
        let text = serde_json::to_string(checkpoint).unwrap();
        evidence.checkpoint("ConfigMap oz-system/oz-audit-checkpoints", &text);
    }
    verify(evidence, terms)
}

pub(super) fn objects(entries: &[Entry]) -> Vec<Value> {
    let object =
        |entry: &Entry| serde_json::to_value(crate::AuditEvent::from(entry.clone())).unwrap();
    entries.iter().map(object).collect()
}

pub(super) fn faults(report: &Report) -> Vec<(Fault, Option<u64>)> {
    let mut faults: Vec<_> = report
        .problems
        .iter()
        .map(|problem| (problem.fault, problem.seq))
        .collect();
    faults.dedup();
    faults
}
