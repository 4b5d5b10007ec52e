//! Tests that every manipulation of a record that a checkpoint covers is detected, at its position.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::support::{
    checkpoint, faults, forged, judged, judged_objects, key, lines, objects, record, terms,
    timestamp, written, written_at,
};
use crate::verify::{Fault, Report, Terms};
use crate::{Chain, Entry, Medium, Writer};

const RECORDS: i64 = 30;

/// Checks that a fault was found, in the chain, at one of these positions.
fn found(report: &Report, places: &[u64]) -> Result<(), TestCaseError> {
    prop_assert!(!report.is_whole(), "not found");
    let hit = report
        .problems
        .iter()
        .any(|problem| problem.seq.is_some_and(|seq| places.contains(&seq)));
    prop_assert!(hit, "not located: {:?}, want {places:?}", report.problems);
    Ok(())
}

/// Returns the position of the record in line `index`.
fn seq(index: usize) -> u64 {
    u64::try_from(index).unwrap() + 1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_is_found(index in 0usize..31, byte in any::<prop::sample::Index>(), bit in 0u8..7) {
        let entries = written("oz-0", RECORDS);
        let signed = checkpoint(entries.last().unwrap());
        let mut lines = lines(&entries);
        let mut bytes = lines[index].clone().into_bytes();
        let position = byte.index(bytes.len());
        bytes[position] ^= 1 << bit;
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        prop_assume!(!text.contains('\n'));
        lines[index] = text;
        let report = judged(&lines, Some(&signed));
        prop_assert!(!report.is_whole(), "{}", lines[index]);
        // The fault is located by its position in the chain, or by its line.
        let here = report.problems.iter().any(|problem| {
            problem.seq == Some(seq(index))
                || problem.place.as_ref().and_then(|place| place.line) == Some(index + 1)
        });
        prop_assert!(here, "{:?}", report.problems);
    }

    #[test]
    fn a_dropped_record_is_found(index in 0usize..31) {
        let entries = written("oz-0", RECORDS);
        let signed = checkpoint(entries.last().unwrap());
        let mut lines = lines(&entries);
        lines.remove(index);
        found(&judged(&lines, Some(&signed)), &[seq(index)])?;
    }

    #[test]
    fn two_records_that_changed_places_are_found(one in 0usize..31, two in 0usize..31) {
        prop_assume!(one != two);
        let entries = written("oz-0", RECORDS);
        let mut lines = lines(&entries);
        lines.swap(one, two);
        found(&judged(&lines, None), &[seq(one), seq(two)])?;
    }

    #[test]
    fn a_record_that_is_there_twice_is_found(index in 0usize..31, to in 0usize..32) {
        let entries = written("oz-0", RECORDS);
        let mut lines = lines(&entries);
        let copy = lines[index].clone();
        lines.insert(to, copy);
        found(&judged(&lines, None), &[seq(index)])?;
    }

    #[test]
    fn two_chains_that_were_spliced_are_found(at in 1usize..30) {
        let one = written("oz-0", RECORDS);
        let signed = checkpoint(one.last().unwrap());
        let mut two = written("oz-1", RECORDS + 1);
        for entry in &mut two {
            // An attacker can make it look like one chain, and compute the digests again.
            entry.link.writer = one[0].link.writer.clone();
            entry.record.message = "nothing to see".to_owned();
            entry.link.digest = crate::Entry::digest_of(&entry.value());
        }
        let spliced: Vec<_> = one[..at].iter().chain(&two[at..]).cloned().collect();
        found(&judged(&lines(&spliced), Some(&signed)), &[seq(at), seq(30)])?;
        found(&judged(&lines(&spliced), None), &[seq(at)])?;
    }

    #[test]
    fn a_chain_that_was_written_anew_is_found(from in 1usize..30) {
        let entries = written("oz-0", RECORDS);
        let signed = checkpoint(entries.last().unwrap());
        let mut prev = entries[from - 1].link.digest.clone();
        let mut forged = entries.clone();
        for entry in &mut forged[from..] {
            entry.record.message = "nothing to see".to_owned();
            entry.link.prev = prev;
            entry.link.digest = crate::Entry::digest_of(&entry.value());
            prev = entry.link.digest.clone();
        }
        let report = judged(&lines(&forged), Some(&signed));
        prop_assert_eq!(faults(&report), [(Fault::SignedDigestMismatch, Some(31))]);
    }

    #[test]
    fn a_record_that_ends_before_its_checkpoint_is_found(left in 0usize..31) {
        let entries = written("oz-0", RECORDS);
        let signed = checkpoint(entries.last().unwrap());
        let report = judged(&lines(&entries)[..left.max(1)], Some(&signed));
        found(&report, &[seq(left.max(1))])?;
    }
}

#[test]
fn invented_chain_is_detected() {
    let mut forged = written("oz-9", 3);
    let mut prev = String::new();
    for entry in &mut forged {
        entry.link.signature = None;
        entry.link.prev = prev;
        entry.link.digest = crate::Entry::digest_of(&entry.value());
        prev = entry.link.digest.clone();
    }
    assert_eq!(
        faults(&judged(&lines(&forged), None)),
        [(Fault::ChainStartUnsigned, Some(1))]
    );
}

#[test]
fn invented_chain_without_first_record_is_detected() {
    let kept = Terms {
        objects_kept_since: Some(timestamp(-1_000)),
        ..terms()
    };
    for long_ago in [None, Some(timestamp(-1_000_000))] {
        let mut prev = String::new();
        let mut chain = Vec::new();
        for entry in written("oz-9", 3).into_iter().skip(1) {
            let entry = forged(entry, |entry| {
                entry.link.prev = std::mem::take(&mut prev);
                entry.link.prev_time = long_ago.or(entry.link.prev_time);
            });
            prev.clone_from(&entry.link.digest);
            chain.push(entry);
        }
        let report = judged_objects(&objects(&chain), &[], &kept);
        let found = faults(&report);
        assert!(found.contains(&(Fault::Unsigned, Some(2))), "{found:?}");
        assert_eq!(
            found.contains(&(Fault::Missing, Some(1))),
            long_ago.is_none()
        );
    }
}

/// Returns `entries` and one more entry that claims to be later by this time.
fn extended(entries: &[Entry], later: SignedDuration, skipped: u64) -> Vec<Entry> {
    let last = entries.last().unwrap();
    let more = forged(last.clone(), |entry| {
        entry.link.prev.clone_from(&last.link.digest);
        entry.link.prev_time = Some(last.record.time);
        entry.link.seq += 1 + skipped;
        entry.record.time += later;
        entry.record.message = "was always here".to_owned();
    });
    entries.iter().cloned().chain([more]).collect()
}

#[test]
fn record_added_to_chain_of_ended_process_is_detected() {
    let entries = written("oz-0", 5);
    let signed = [checkpoint(&entries[5])];
    let later = SignedDuration::from_secs(3);
    for skipped in [0, 1, 50] {
        let more = objects(&extended(&entries, later, skipped));
        let report = judged_objects(&more, &signed, &terms());
        assert_eq!(faults(&report), [(Fault::Unsigned, Some(7 + skipped))]);
    }
    let report = judged(&lines(&extended(&entries, later, 0)), None);
    assert_eq!(faults(&report), [(Fault::Unsigned, Some(7))]);
}

#[test]
fn checkpoints_that_were_taken_away_or_put_back_are_found() {
    let entries = written_at("oz-0", (1..=20).map(|number| number * 10_000));
    let judge = |entries: &[Entry], signed: &[usize]| {
        let signed: Vec<_> = signed.iter().map(|&n| checkpoint(&entries[n])).collect();
        faults(&judged_objects(&objects(entries), &signed, &terms()))
    };
    assert_eq!(judge(&entries, &[20]), []);
    // An attacker who removes checkpoints can remove events as well.
    for left in [&entries[..], &entries[..15]] {
        assert_eq!(judge(left, &[]), [(Fault::CheckpointMissing, Some(1))]);
    }
    assert_eq!(judge(&entries, &[5]), [(Fault::CheckpointMissing, Some(7))]);
    // The last records of a process that still writes are not covered yet.
    assert_eq!(judge(&entries, &[15]), []);
    // Nor are the records after a long pause.
    let idle = written_at("oz-0", [1_000, 900_000, 900_010]);
    assert_eq!(judge(&idle, &[1]), []);
    // A log alone requires no checkpoint.
    assert!(judged(&lines(&entries), None).is_whole());
}

#[test]
fn checkpoints_that_another_process_has_seen_do_not_vanish() {
    let old = written("oz-0", 5);
    let head = old[5].head(&[Medium::Objects]);
    let writer = Writer::new("oz-operator", "oz-0", timestamp(100), 2);
    let (mut chain, first) = Chain::begin(writer, timestamp(100), &[head], &key());
    let new = [first, chain.append(record(101), &key())];
    let all: Vec<_> = old.iter().chain(&new).cloned().collect();
    let report = judged_objects(&objects(&all), &[], &terms());
    assert_eq!(faults(&report), [(Fault::CheckpointMissing, Some(6))]);
    // The chain is old: it may have been deleted since.
    let kept = Terms {
        objects_kept_since: Some(timestamp(50)),
        ..terms()
    };
    assert!(judged_objects(&objects(&new), &[], &kept).is_whole());
}

#[test]
fn a_checkpoint_that_was_changed_proves_nothing() {
    let entries = written("oz-0", 5);
    let mut signed = checkpoint(&entries[5]);
    signed.head.seq = 3;
    signed.head.digest = entries[2].link.digest.clone();
    assert_eq!(
        faults(&judged(&lines(&entries[..3]), Some(&signed))),
        [(Fault::BadSignature, Some(3))]
    );
}
