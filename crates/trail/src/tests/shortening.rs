//! Tests of shortening: a shortened trail is whole where a signed record declares the deletion, and nowhere else.

use jiff::{SignedDuration, Timestamp};

use super::support::{forged, key, record, timestamp};
use crate::verify::{Evidence, Fault, Report, Terms, verify};
use crate::{
    AuditKey, Chain, Checkpoint, Entry, Medium, PruneOrder, Record, Shortening, Trust, Writer,
    excess,
};

/// Returns a chain of `component` with a record a second; the last record declares that all records older than `before`
/// are deleted.
fn shortened_by(component: &str, before: Timestamp, key: &AuditKey) -> Vec<Entry> {
    let writer = Writer::new(component, "oz-0", timestamp(0), 1);
    let (mut chain, first) = Chain::begin(writer, timestamp(0), &[], key);
    let mut entries = vec![first];
    let mut append = |record: Record| entries.push(chain.append(record, key));
    for number in 1..=20 {
        append(record(number));
    }
    let order = PruneOrder {
        before,
        by: "admin".to_owned(),
    };
    let mut shortening = Shortening::Asked(order).record(timestamp(20), before);
    shortening.time = timestamp(20) + SignedDuration::from_millis(1);
    append(shortening);
    append(record(21));
    entries
}

fn judged(entries: Vec<Entry>) -> Report {
    let mut evidence = Evidence::default();
    for entry in &entries {
        let object = crate::AuditEvent::from(entry.clone());
        evidence.object(&serde_json::to_value(object).unwrap());
    }
    let head = entries.last().unwrap().head(&[Medium::Objects]);
    let checkpoint = Checkpoint::sign(head, &key());
    evidence.checkpoint("map", &serde_json::to_string(&checkpoint).unwrap());
    let public = key().public();
    let terms = Terms {
        trust: Trust::pinned([public.as_str()]).unwrap(),
        ..Terms::default()
    };
    verify(evidence, &terms)
}

fn without_before(mut entries: Vec<Entry>, before: Timestamp) -> Vec<Entry> {
    entries.retain(|entry| entry.record.time >= before);
    entries
}

#[test]
fn records_removed_by_shortening_are_noted_and_not_missing() {
    let before = timestamp(10);
    let entries = shortened_by("oz-operator", before, &key());
    assert!(judged(entries.clone()).is_whole());
    let report = judged(without_before(entries, before));
    assert!(report.is_whole(), "{:#?}", report.problems);
    let note = report
        .notes
        .iter()
        .find(|note| note.starts_with("shortened at"));
    assert!(
        note.unwrap().ends_with("are deleted, as admin requests"),
        "{note:?}"
    );
    assert_eq!(report.chains[0].first, 11);
}

#[test]
fn newer_record_is_missing_despite_shortening() {
    let entries = shortened_by("oz-operator", timestamp(10), &key());
    let report = judged(without_before(entries, timestamp(15)));
    assert_eq!(report.problems[0].fault, Fault::Missing);
}

#[test]
fn without_a_signature_or_by_another_hand_it_proves_nothing() {
    let before = timestamp(10);
    let by_webhook = shortened_by("oz-webhook", before, &key());
    assert!(!judged(without_before(by_webhook, before)).is_whole());
    let stranger = AuditKey::new(&[9; 32]);
    let by_stranger = shortened_by("oz-operator", before, &stranger);
    assert!(!judged(without_before(by_stranger, before)).is_whole());
    let mut unsigned = shortened_by("oz-operator", before, &key());
    let place = unsigned.len() - 2;
    unsigned[place] = forged(unsigned[place].clone(), |_| {});
    assert!(!judged(without_before(unsigned, before)).is_whole());
}

#[test]
fn shortening_record_does_not_cover_later_records() {
    let later = timestamp(1_000);
    let entries = shortened_by("oz-operator", later, &key());
    assert!(!judged(without_before(entries, timestamp(10))).is_whole());
}

#[test]
fn a_tenth_more_goes_than_must() {
    for (events, most, gone) in [
        (0, 100, 0),
        (100, 100, 0),
        (101, 100, 11),
        (50, 5, 45),
        (1_000, 0, 0),
        (2, 1, 1),
    ] {
        assert_eq!(excess(events, most), gone, "{events} of {most}");
    }
}
