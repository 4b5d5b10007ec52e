//! Tests that written records verify: across restarts, rotation, retention, a crash, a round trip.

use jiff::{SignedDuration, Unit};
use proptest::prelude::*;
use serde_json::Value;

use super::support::{
    BOTH, checkpoint, faults, judged, judged_objects, key, lines, objects, record, terms,
    timestamp, written, written_at,
};
use crate::verify::{Evidence, Fault, IN_FLIGHT, Terms, Verdict, verify};
use crate::{
    AuditKey, Chain, Checkpoint, DECIDED_AT, Entry, Medium, Trust, Writer, canonical, name_of,
    time_in_name,
};

#[test]
fn written_chain_is_whole_and_complete_to_checkpoint() {
    let entries = written("oz-0", 20);
    let report = judged(&lines(&entries), Some(&checkpoint(&entries[15])));
    assert!(report.is_whole(), "{:?}", report.problems);
    let chain = &report.chains[0];
    assert_eq!((chain.records, chain.complete_through), (21, 16));
    assert_eq!(chain.unsigned, 5);
}

#[test]
fn without_a_record_there_is_nothing_to_verify() {
    let nothing = judged(&[], None);
    assert!(nothing.is_whole() && nothing.chains.is_empty());
    for strict in [false, true] {
        assert_eq!(nothing.verdict(strict), Verdict::Empty);
    }
    let gone = judged_objects(&[], &[checkpoint(&written("oz-0", 5)[3])], &terms());
    assert_eq!(gone.verdict(false), Verdict::Invalid);
    let young = judged(&lines(&written("oz-0", 5)), None);
    assert_eq!(young.verdict(false), Verdict::Valid);
    assert_eq!(young.verdict(true), Verdict::Invalid);
}

#[test]
fn a_field_that_this_version_does_not_know_is_covered_too() {
    let mut value = written("oz-0", 1)[1].value();
    value["later"] = Value::from("yes");
    let digest = crate::Entry::digest_of(&value);
    value["digest"] = Value::from(digest.clone());
    assert_eq!(crate::Entry::digest_of(&value), digest);
    value["later"] = Value::from("no");
    assert_ne!(crate::Entry::digest_of(&value), digest);
}

#[test]
fn the_encoding_does_not_depend_on_the_order_of_fields() {
    let one: Value = serde_json::from_str(r#"{"b":[1,{"y":"ü\n","x":null}],"a":true}"#).unwrap();
    let two: Value = serde_json::from_str(r#"{"a":true,"b":[1,{"x":null,"y":"ü\n"}]}"#).unwrap();
    assert_eq!(canonical(&one), canonical(&two));
    assert_eq!(
        canonical(&one),
        r#"{"a":true,"b":[1,{"x":null,"y":"ü\n"}]}"#.as_bytes()
    );
}

#[test]
fn record_names_sort_by_time_and_contain_it() {
    let entries = written("oz-0", 30);
    let names: Vec<String> = entries[1..].iter().map(name_of).collect();
    assert!(names.is_sorted());
    for (entry, name) in entries[1..].iter().zip(&names) {
        assert_eq!(time_in_name(name), Some(entry.record.time), "{name}");
    }
    for other in [
        "",
        "debug",
        "20261121t140512",
        "20261121t1405121234567-x",
        "ä".repeat(40).as_str(),
    ] {
        assert_eq!(time_in_name(other), None, "{other}");
    }
}

#[test]
fn records_older_than_retention_may_be_missing() {
    let entries = written_at("oz-0", (1..=20).map(|number| number * 1_000));
    let signed = checkpoint(&entries[20]);
    let kept = Terms {
        objects_kept_since: Some(timestamp(10)),
        ..terms()
    };
    // The records of the seconds 0 to 9 are missing.
    let rest = objects(&entries[10..]);
    assert!(judged_objects(&rest, std::slice::from_ref(&signed), &kept).is_whole());
    // One more record is missing than is old enough.
    let report = judged_objects(
        &objects(&entries[12..]),
        std::slice::from_ref(&signed),
        &kept,
    );
    assert_eq!(faults(&report), [(Fault::Missing, Some(1))]);
    // All records are missing, long after.
    let later = Terms {
        objects_kept_since: Some(timestamp(100)),
        ..terms()
    };
    assert!(judged_objects(&[], std::slice::from_ref(&signed), &later).is_whole());
    assert_eq!(
        faults(&judged_objects(&[], &[signed], &kept)),
        [(Fault::Truncated, Some(1))]
    );
}

#[test]
fn record_in_progress_at_kill_is_no_fault_and_earlier_gap_is() {
    let many = i64::try_from(IN_FLIGHT).unwrap() + 20;
    let entries = written("oz-0", many);
    let signed = checkpoint(&entries[9]);
    let without = |seq: u64| {
        let left: Vec<_> = entries
            .iter()
            .filter(|entry| entry.link.seq != seq)
            .cloned()
            .collect();
        judged_objects(&objects(&left), std::slice::from_ref(&signed), &terms())
    };
    assert!(without(IN_FLIGHT + 15).is_whole());
    assert_eq!(faults(&without(5)), [(Fault::Missing, Some(5))]);
    // The record is not covered by a checkpoint, but it is too far from the end to have been in progress.
    assert_eq!(faults(&without(12)), [(Fault::Missing, Some(12))]);
}

#[test]
fn a_chain_that_vanishes_as_a_whole_is_missed_by_the_next_one() {
    let old = written("oz-0", 5);
    let head = old[5].head(&BOTH);
    let writer = Writer::new("oz-operator", "oz-0", timestamp(100), 2);
    let (mut chain, first) = Chain::begin(writer, timestamp(100), &[head], &key());
    let new = [first, chain.append(record(101), &key())];
    let signed = [checkpoint(&new[1])];
    let report = judged_objects(&objects(&new), &signed, &terms());
    assert_eq!(faults(&report), [(Fault::Truncated, Some(1))]);
    let all: Vec<_> = old.iter().chain(&new).cloned().collect();
    assert!(judged_objects(&objects(&all), &signed, &terms()).is_whole());
}

#[test]
fn a_key_that_the_pinned_one_vouches_for_is_believed_and_another_is_not() {
    let next = AuditKey::new(&[8; 32]);
    let entries = written("oz-0", 5);
    let by_next = Checkpoint::sign(entries[5].head(&BOTH), &next);
    let report = judged(&lines(&entries), Some(&by_next));
    assert_eq!(faults(&report), [(Fault::UnknownKey, Some(6))]);

    let last = AuditKey::new(&[9; 32]);
    let by_last = Checkpoint::sign(entries[5].head(&BOTH), &last);
    let mut believing = terms();
    // The order does not matter.
    believing
        .trust
        .extend(&[last.published(Some(&next)), next.published(Some(&key()))]);
    for signed in [by_next, by_last] {
        let mut evidence = Evidence::default();
        evidence.log("operator.jsonl", &lines(&entries).join("\n"));
        evidence.checkpoint("ConfigMap", &serde_json::to_string(&signed).unwrap());
        let report = verify(evidence, &believing);
        assert!(report.is_whole(), "{:?}", report.problems);
    }
    // The key vouches only for itself.
    let mut fooled = terms();
    fooled
        .trust
        .extend(&[next.published(Some(&next)), next.published(None)]);
    assert_eq!(fooled.trust.ids().len(), 1);
    assert!(Trust::pinned(["not a key"]).is_err());
}

#[test]
fn objects_and_logs_of_one_chain_are_held_against_each_other() {
    let entries = written("oz-0", 5);
    let mut evidence = Evidence::default();
    evidence.log("operator.jsonl", &lines(&entries).join("\n"));
    for object in objects(&entries) {
        evidence.object(&object);
    }
    let report = verify(evidence.clone(), &terms());
    assert!(report.is_whole(), "{:?}", report.problems);
    assert_eq!(report.records(), 6);

    // A record that was written again, with new digests, is another record at the same position.
    let forged = written("oz-0", 4);
    let (mut chain, _) = Chain::begin(forged[0].link.writer.clone(), timestamp(0), &[], &key());
    let other = (1..=5).map(|_| chain.append(record(77), &key()));
    let last = other.last().unwrap();
    evidence.object(&objects(&[last])[0]);
    let faults = faults(&verify(evidence, &terms()));
    assert!(faults.contains(&(Fault::Forked, Some(6))), "{faults:?}");
}

#[test]
fn a_line_that_a_killed_process_tore_is_no_fault() {
    let entries = written("oz-0", 3);
    let mut torn = lines(&entries);
    torn.push(torn[2][..40].to_owned());
    let report = judged(&torn, None);
    assert!(report.is_whole());
    assert_eq!(report.notes.len(), 1);
}

#[test]
fn logs_of_replicas_that_were_not_given_are_not_missed() {
    let other = written("oz-1", 5);
    let mut head = other[5].head(&BOTH);
    head.writer.component = "oz-webhook".to_owned();
    let writer = Writer::new("oz-operator", "oz-0", timestamp(100), 2);
    let (_, first) = Chain::begin(writer, timestamp(100), &[head], &key());
    assert!(judged(&lines(&[first]), None).is_whole());
}

#[test]
fn a_clock_that_steps_back_makes_no_record_look_old_enough_to_be_gone() {
    let writer = Writer::new("oz-operator", "oz-0", timestamp(0), 1);
    let (mut chain, first) = Chain::begin(writer, timestamp(100), &[], &key());
    let second = chain.append(record(1), &key());
    let third = chain.append(record(2), &key());
    assert_eq!(third.link.prev_time, Some(first.record.time));
    assert!(third.record.time < first.record.time - SignedDuration::from_secs(90));
    assert_eq!(second.head(&[Medium::Log]).time, first.record.time);
}

#[test]
fn late_record_has_time_of_predecessor_and_its_decision_time() {
    let entries = written_at("oz-0", [70_000, 10_000, 70_010]);
    let times: Vec<_> = entries.iter().map(|entry| entry.record.time).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times[1], times[2]);
    let decided = entries
        .iter()
        .map(|entry| entry.record.details.get(DECIDED_AT));
    let decided: Vec<_> = decided.collect();
    assert_eq!(decided[..2], [None, None]);
    let late = timestamp(10).round(Unit::Microsecond).unwrap();
    assert_eq!(decided[2], Some(&late.to_string()));
    // The record has the time of the preceding record, so it need not be signed again.
    let signed = entries.iter().map(|entry| entry.link.signature.is_some());
    assert_eq!(signed.collect::<Vec<_>>(), [true, true, false, false]);
}

#[test]
fn record_of_the_same_instant_as_the_one_before_is_not_late() {
    let time = timestamp(0) + SignedDuration::from_nanos(700);
    let writer = Writer::new("oz-operator", "oz-0", time, 1);
    let record = || {
        let mut record = record(1);
        record.time = time;
        record
    };
    let (mut chain, first) = Chain::begin(writer, time, &[], &key());
    let second = chain.append(record(), &key());
    let third = chain.append(record(), &key());
    for entry in [first, second, third] {
        assert_eq!(entry.record.details.get(DECIDED_AT), None, "{entry:?}");
    }
}

#[test]
fn log_lines_outside_trail_are_noted_and_not_judged() {
    let entries = written("oz-0", 2);
    let mut log = lines(&entries);
    log.insert(0, "starting".to_owned());
    log.insert(
        2,
        r#"{"timestamp":"2026-01-02T15:04:05Z","level":"INFO","fields":{}}"#.to_owned(),
    );
    log.push("null".to_owned());
    let report = judged(&log, Some(&checkpoint(&entries[2])));
    assert!(report.is_whole(), "{:?}", report.problems);
    assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    assert!(report.notes[0].contains("3 lines"), "{:?}", report.notes);
}

#[test]
fn a_record_of_a_new_key_lets_the_old_pin_do_without_a_cluster() {
    let (next, stranger) = (AuditKey::new(&[8; 32]), AuditKey::new(&[9; 32]));
    let rotated = |key: &AuditKey, before: &AuditKey| {
        let published = key.published(Some(before));
        let mut record = record(1);
        record.action = crate::Action::KeyRotated;
        record = record.detail("publicKey", published.public_key);
        record.detail("vouched", published.vouched.unwrap_or_default())
    };
    for (by, new, whole) in [(&key(), &next, true), (&stranger, &next, false)] {
        let writer = Writer::new("oz-operator", "oz-0", timestamp(0), 1);
        let (mut chain, first) = Chain::begin(writer, timestamp(0), &[], &key());
        let entries = [
            first,
            chain.append(rotated(new, by), new),
            chain.append(record(3), new),
        ];
        let report = judged(&lines(&entries), None);
        assert_eq!(report.is_whole(), whole, "{:?}", report.problems);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The records arrive as `objects` of `oz-audit` writes them: several at once, but none after a signed record that
    /// has not arrived; and a checkpoint within seconds.
    #[test]
    fn a_writer_that_is_killed_at_any_moment_leaves_a_whole_trail(
        pauses in prop::collection::vec(prop::sample::select(vec![0, 3, 40, 990, 1_000, 1_700, 59_000, 600_000]), 1..60),
        killed in any::<prop::sample::Index>(),
        arrived in any::<u64>(),
    ) {
        let times = pauses.iter().scan(0, |time, pause| { *time += pause; Some(*time) });
        let entries = written_at("oz-0", times);
        let there = 1 + killed.index(entries.len());
        let mut left = entries[..there].to_vec();
        let since = entries.get(there).map(|entry| entry.record.time);
        for (index, entry) in entries[there..].iter().enumerate().take(64) {
            // No record is in progress for so long.
            let long = SignedDuration::from_secs(10);
            if since.is_some_and(|since| entry.record.time.duration_since(since) > long) {
                break;
            }
            if arrived >> index & 1 == 1 {
                left.push(entry.clone());
            }
            if entry.link.signature.is_some() {
                break;
            }
        }
        let end = left.last().unwrap().record.time;
        let covered = |entry: &&crate::Entry| {
            end.duration_since(entry.record.time) > SignedDuration::from_secs(10)
        };
        let signed: Vec<_> = entries[..there].iter().filter(covered).map(checkpoint).collect();
        let signed = signed.last().cloned();
        let signed = signed.as_slice();
        let report = judged_objects(&objects(&left), signed, &terms());
        prop_assert!(report.is_whole(), "{:?}", report.problems);
    }
}

#[test]
fn lost_key_is_distinguished_from_forged_record() {
    let entries = written("oz-0", 5);
    let signed = checkpoint(&entries[5]);
    let kept = AuditKey::new(&[8; 32]);
    let trusting = |keys: &[&AuditKey]| {
        let keys: Vec<String> = keys.iter().map(|key| key.public()).collect();
        Terms {
            trust: Trust::pinned(keys.iter().map(String::as_str)).unwrap(),
            ..Terms::default()
        }
    };
    let judged = |entries: &[Entry], keys: &[&AuditKey]| {
        judged_objects(
            &objects(entries),
            std::slice::from_ref(&signed),
            &trusting(keys),
        )
    };
    let lost = judged(&entries, &[&kept]);
    assert_eq!(lost.verdict(false), Verdict::Unchecked);
    assert_eq!(lost.verdict(true), Verdict::Unchecked);
    let [unknown] = &lost.unknown_keys[..] else {
        panic!("{:?}", lost.unknown_keys);
    };
    let signatures = entries.iter().filter(|one| one.link.signature.is_some());
    assert_eq!(unknown.key, key().id());
    assert_eq!(unknown.records, signatures.count() as u64);
    assert_eq!(unknown.checkpoints, 1);
    assert_eq!(unknown.first, entries[0].record.time);
    // The public part of the key was kept.
    let found = judged(&entries, &[&kept, &key()]);
    assert_eq!(found.verdict(false), Verdict::Valid);
    assert_eq!(found.unknown_keys, []);
    // Other faults are reported as well.
    let mut altered = entries.clone();
    altered[3].record.message = "nothing happened".to_owned();
    assert_eq!(judged(&altered, &[&kept]).verdict(false), Verdict::Invalid);
    let fewer = [&entries[..3], &entries[4..]].concat();
    assert_eq!(judged(&fewer, &[&key()]).verdict(false), Verdict::Invalid);
    // The signature names a known key.
    let mut forged = entries.clone();
    let signature = AuditKey::new(&[9; 32]).sign("x", b"y");
    let (_, signature) = signature.split_once(':').unwrap();
    forged[0].link.signature = Some(format!("{}:{signature}", key().id()));
    let forged = judged(&forged, &[&key()]);
    assert_eq!(forged.verdict(false), Verdict::Invalid);
    assert!(
        faults(&forged)
            .iter()
            .any(|(fault, _)| *fault == Fault::BadSignature)
    );
}
