//! Each writer has a separate key, which is valid only for its name.

use oz_api::names::{BROKER, GATE, OPERATOR, OTHER_WRITERS, WEBHOOK};

use super::support::*;
use crate::verify::{Evidence, Fault, Report, Terms, verify};
use crate::{AuditKey, Chain, Checkpoint, Entry, KeyError, Published, Trust, Writer};

fn key_of(writer: &str) -> AuditKey {
    let seed = match writer {
        OPERATOR => return key(),
        WEBHOOK => 21,
        GATE => 22,
        BROKER => 23,
        _ => 24,
    };
    AuditKey::new(&[seed; 32])
}

fn vouched(writer: &str) -> Published {
    let (id, vouched) = key().vouch(writer, &key_of(writer).public()).unwrap();
    assert_eq!(id, key_of(writer).id());
    vouched
}

/// Returns the published keys of a cluster with every component.
fn published() -> Vec<Published> {
    let others = OTHER_WRITERS.iter().map(|writer| vouched(writer));
    others.chain([key().published(None)]).collect()
}

fn chain(writer: &str, key: &AuditKey) -> Vec<Entry> {
    let writer = Writer::new(writer, "oz-0", timestamp(0), 1);
    let (mut chain, first) = Chain::begin(writer, timestamp(0), &[], key);
    vec![first, chain.append(record(5), key)]
}

/// Returns the report about a log and its checkpoint, by the pinned key of the operator.
fn judged_by_pin(entries: &[Entry], checkpoint: &Checkpoint) -> Report {
    let mut evidence = Evidence::default();
    evidence.log("log", &lines(entries).join("\n"));
    evidence.checkpoint("ConfigMap", &serde_json::to_string(checkpoint).unwrap());
    let mut terms: Terms = terms();
    terms.trust.extend(&published());
    verify(evidence, &terms)
}

#[test]
fn each_writer_signs_in_its_own_name_alone() {
    let everybody = || OTHER_WRITERS.iter().copied().chain([OPERATOR]);
    for name in everybody() {
        for signer in everybody() {
            let entries = chain(name, &key_of(signer));
            let own = Checkpoint::sign(entries[1].head(&BOTH), &key_of(name));
            let theirs = Checkpoint::sign(entries[1].head(&BOTH), &key_of(signer));
            let report = judged_by_pin(&entries, &own);
            if name == signer {
                assert!(report.is_whole(), "{name}: {:?}", report.problems);
                continue;
            }
            let found = faults(&report);
            assert!(
                found.contains(&(Fault::BadSignature, Some(1))),
                "{name} by {signer}: {found:?}"
            );
            let honest = chain(name, &key_of(name));
            let found = faults(&judged_by_pin(&honest, &theirs));
            assert!(
                found.iter().any(|(fault, _)| *fault == Fault::BadSignature),
                "checkpoint of {name} by {signer}: {found:?}"
            );
        }
    }
}

#[test]
fn voucher_by_other_writer_than_operator_is_rejected() {
    let stranger = AuditKey::new(&[9; 32]);
    let broker = key_of(BROKER);
    for claimed in [
        stranger.published(Some(&broker)),
        broker.vouch(WEBHOOK, &stranger.public()).unwrap().1,
        // A voucher for another name.
        Published {
            writer: Some(WEBHOOK.to_owned()),
            ..key().vouch(GATE, &stranger.public()).unwrap().1
        },
        // A voucher for a writer instead of the operator, and in the name of the operator.
        Published {
            writer: None,
            ..key().vouch(GATE, &stranger.public()).unwrap().1
        },
        Published {
            writer: Some(OPERATOR.to_owned()),
            ..key().vouch(GATE, &stranger.public()).unwrap().1
        },
    ] {
        let mut trust = terms().trust;
        trust.extend(&published());
        let before = trust.ids().len();
        trust.extend(std::slice::from_ref(&claimed));
        assert_eq!(trust.ids().len(), before, "{claimed:?}");
    }
    for name in [OPERATOR, "", "a b", "a\nb"] {
        assert_eq!(key().vouch(name, &stranger.public()), None, "{name:?}");
    }
    assert_eq!(key().vouch(GATE, "no key"), None);
}

#[test]
fn key_of_another_writer_is_pinned_after_its_name() {
    let gate = key_of(GATE);
    let content = b"content";
    let signature = gate.sign("x", content);
    let pin = vouched(GATE).pin();
    assert_eq!(pin, format!("oz-gate {}", gate.public()));
    let trust = Trust::pinned([pin.as_str()]).unwrap();
    assert_eq!(trust.check(GATE, "x", content, &signature), Ok(()));
    let refused = trust.check(OPERATOR, "x", content, &signature);
    assert!(matches!(refused, Err(KeyError::OtherWriter { .. })));
    let operators = format!("oz-operator {}", gate.public());
    assert!(Trust::pinned([operators.as_str()]).is_err());
    let all = Trust::published(&published()).unwrap();
    assert_eq!(all.ids().len(), 4);
}

#[test]
fn key_that_two_writers_publish_still_signs_for_the_first() {
    let mut trust = terms().trust;
    // A writer publishes the next key of the operator as its own.
    let next = AuditKey::new(&[8; 32]);
    let theirs = key().vouch(BROKER, &next.public()).unwrap().1;
    trust.extend(&[theirs, next.published(Some(&key()))]);
    let signature = next.sign("x", b"content");
    assert_eq!(trust.check(OPERATOR, "x", b"content", &signature), Ok(()));
}

#[test]
fn voucher_is_known_again_until_the_key_that_vouches_is_replaced() {
    let gate = vouched(GATE);
    let text = serde_json::to_string(&gate).unwrap();
    assert_eq!(serde_json::from_str::<Published>(&text).unwrap(), gate);
    assert_eq!(vouched(GATE), gate);
    let next = AuditKey::new(&[8; 32]);
    let again = next.vouch(GATE, &key_of(GATE).public()).unwrap().1;
    assert_ne!(again, gate);
}

#[test]
fn keys_of_an_earlier_release_sign_for_every_writer() {
    let trust = |published: &[Published]| Trust::published(published).unwrap();
    let signature = key().sign("purpose", b"content");
    let earlier = [key().published(None)];
    for writer in OTHER_WRITERS.into_iter().chain([OPERATOR]) {
        let checked = trust(&earlier).check(writer, "purpose", b"content", &signature);
        assert_eq!(checked, Ok(()), "{writer}");
    }
    // Once another writer has a separate key, the key of the operator is valid only for the operator.
    let checked = trust(&published()).check(WEBHOOK, "purpose", b"content", &signature);
    assert!(matches!(checked, Err(KeyError::OtherWriter { .. })));
}
