//! Tests of the tables that are derived from records, of samples, and of seals.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use oz_api::{Requester, names};
use oz_trail::verify::{Evidence, Fault, verify};
use oz_trail::{
    Action, AuditKey, Chain, Checkpoint, Decision, Entry, Medium, PodRef, Record, RequestRef,
    Writer,
};
use serde_json::json;

use super::*;
use crate::entitlements::Entitlements;

const BEGAN: Timestamp = Timestamp::constant(1_790_000_000, 0);

fn key() -> AuditKey {
    AuditKey::new(&[7; 32])
}

fn minutes(number: i64) -> Timestamp {
    BEGAN + SignedDuration::from_mins(number)
}

fn record(at: Timestamp, action: Action, decision: Decision, uid: &str, who: &str) -> Record {
    Record {
        user: Some(Requester {
            user: who.to_owned(),
            ..Requester::default()
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("{who}-1"),
            uid: uid.to_owned(),
        },
        ..Record::about(
            at,
            action,
            decision,
            &format!("{uid}{who}{at}"),
            "Test",
            "test",
        )
    }
}

/// Returns a chain of one writer: each minute a request is approved by bob, granted, used, and ends.
fn trail(requests: i64) -> (Vec<Entry>, Checkpoint) {
    let key = key();
    let writer = Writer::new(names::OPERATOR, "oz-0", BEGAN, 1);
    let (mut chain, first) = Chain::begin(writer, BEGAN, &[], &key);
    let mut entries = vec![first];
    for number in 0..requests {
        let (at, uid) = (minutes(number), format!("uid-{number}"));
        let given = record(at, Action::ApprovalGiven, Decision::Allow, &uid, "bob");
        entries.push(chain.append(given.detail("rules", "security"), &key));
        let mut granted = record(at, Action::AccessGranted, Decision::Allow, &uid, "=alice");
        granted.until = Some(minutes(number + 5));
        granted.pod = Some(PodRef {
            name: "web-0".to_owned(),
            ..PodRef::default()
        });
        let granted = granted.detail("approvedBy", "bob (security)");
        entries.push(chain.append(granted, &key));
        let opened = record(at, Action::SessionOpened, Decision::Allow, &uid, "=alice");
        entries.push(chain.append(opened, &key));
        let expired = record(at, Action::AccessExpired, Decision::End, &uid, "=alice");
        entries.push(chain.append(expired, &key));
    }
    let head = entries.last().unwrap().head(&[Medium::Objects]);
    let checkpoint = Checkpoint::sign(head, &key);
    (entries, checkpoint)
}

fn manifest(from: i64, to: i64) -> Manifest {
    Manifest {
        format: FORMAT.to_owned(),
        from: minutes(from),
        to: minutes(to),
        sample: None,
        gaps: BTreeSet::new(),
    }
}

/// Returns the entries in a bundle of this time, in addition to the first of the chain: those of the time and the first
/// signed one after it.
fn part(entries: &[Entry], manifest: &Manifest) -> Vec<Entry> {
    let mut part: Vec<Entry> = entries.iter().take(1).cloned().collect();
    for entry in entries.iter().skip(1) {
        let time = entry.record.time;
        if time < manifest.from {
            continue;
        }
        part.push(entry.clone());
        if time >= manifest.to && entry.link.signature.is_some() {
            break;
        }
    }
    part
}

fn faults(entries: &[Entry], checkpoint: &Checkpoint, manifest: &Manifest) -> Vec<Fault> {
    let mut evidence = Evidence::default();
    let text = serde_json::to_string(checkpoint).unwrap();
    evidence.checkpoint("checkpoints", &text);
    for (line, entry) in entries.iter().enumerate() {
        evidence.exported("records", line + 1, entry.value());
    }
    let trust = Trust::pinned([key().public().as_str()]).unwrap();
    let report = verify(evidence, &manifest.terms(trust));
    report.problems.iter().map(|one| one.fault).collect()
}

#[test]
fn a_part_of_a_trail_is_whole_and_nothing_can_be_left_out_of_it() {
    let (entries, checkpoint) = trail(30);
    let manifest = manifest(10, 20);
    let part = part(&entries, &manifest);
    assert!(part.len() < entries.len() - 40);
    assert_eq!(faults(&part, &checkpoint, &manifest), []);
    // The first record of the chain is outside the time, but its absence is detected all the same, as is that of each
    // other record.
    for left_out in 1..part.len() {
        let mut less = part.clone();
        let gone = less.remove(left_out);
        let faults = faults(&less, &checkpoint, &manifest);
        assert!(!faults.is_empty(), "{left_out} {:?}", gone.record.action);
    }
    // The end of the time is missing, with all that follows.
    for cut in 2..part.len() {
        let less = &part[..cut];
        let faults = faults(less, &checkpoint, &manifest);
        assert!(faults.contains(&Fault::Truncated), "{cut}");
    }
}

#[test]
fn a_chain_that_was_silent_for_all_of_the_time_is_whole() {
    let key = key();
    let writer = Writer::new(names::OPERATOR, "oz-0", BEGAN, 1);
    let (mut chain, first) = Chain::begin(writer, BEGAN, &[], &key);
    let late = record(
        minutes(50),
        Action::AccessGranted,
        Decision::Allow,
        "1",
        "a",
    );
    let late = chain.append(late, &key);
    let checkpoint = Checkpoint::sign(late.head(&[Medium::Objects]), &key);
    let manifest = manifest(10, 20);
    let both = [first.clone(), late];
    assert_eq!(faults(&both, &checkpoint, &manifest), []);
    assert_eq!(faults(&[first], &checkpoint, &manifest), [Fault::Truncated]);
}

#[test]
fn records_omitted_after_period_are_accepted_and_gap_within_is_fault() {
    let (entries, checkpoint) = trail(30);
    let manifest = manifest(10, 20);
    let mut with_later = part(&entries, &manifest);
    let last = entries.last().unwrap().clone();
    with_later.push(last.clone());
    let found = faults(&with_later, &checkpoint, &manifest);
    // The last record is not signed itself.
    assert_eq!(found, [Fault::Unsigned]);
    let signed = entries
        .iter()
        .rev()
        .find(|one| one.link.signature.is_some());
    let mut with_later = part(&entries, &manifest);
    with_later.push(signed.unwrap().clone());
    assert_eq!(faults(&with_later, &checkpoint, &manifest), []);
    // Without the record that closes the time, there is a gap that may be within it.
    with_later.remove(with_later.len() - 2);
    assert_eq!(
        faults(&with_later, &checkpoint, &manifest),
        [Fault::Missing]
    );
}

fn accounts(entries: &[Entry]) -> Accounts {
    let mut accounts = Accounts::default();
    entries.iter().for_each(|entry| accounts.take(entry));
    accounts
}

#[test]
fn request_is_summarized_in_one_line_with_approvers() {
    let (entries, _) = trail(2);
    let accounts = accounts(&entries);
    let rows: Vec<String> = accounts.summary().lines().map(ToOwned::to_owned).collect();
    assert_eq!(rows.len(), 3);
    let at = BEGAN.to_string();
    let expected = format!(
        "ExecAccessRequest,shop,bob-1,uid-0,'=alice,,,web-0,,,,bob (security),{at},{},{at},AccessExpired (Test),1,0",
        minutes(5)
    );
    assert_eq!(rows[1], expected);
    assert_eq!(accounts.requests(), (2, 2));
    let approvals = accounts.approvals();
    let first = approvals.lines().nth(1).unwrap();
    let begins = format!(
        "{at},ApprovalGiven,Allow,bob,security,ExecAccessRequest,shop,bob-1,uid-0,,sha256:"
    );
    assert!(first.starts_with(&begins), "{first}");
}

#[test]
fn emergency_is_counted_as_granted_without_approval() {
    let key = key();
    let writer = Writer::new(names::OPERATOR, "oz-0", BEGAN, 1);
    let (mut chain, _) = Chain::begin(writer, BEGAN, &[], &key);
    let granted = record(
        BEGAN,
        Action::EmergencyGranted,
        Decision::Allow,
        "uid-0",
        "alice",
    );
    let accounts = accounts(&[chain.append(granted, &key)]);
    assert_eq!((accounts.requests(), accounts.approved()), ((1, 1), 0));
    let summary = accounts.summary();
    let row = summary.lines().nth(1).unwrap();
    assert!(row.contains(",nobody (emergency),"), "{row}");
}

#[test]
fn harness_run_is_one_line_with_its_approvers_ticket_and_end() {
    let key = key();
    let writer = Writer::new(names::OPERATOR, "oz-0", BEGAN, 1);
    let (mut chain, _) = Chain::begin(writer, BEGAN, &[], &key);
    let of = |minute: i64, action: Action, decision: Decision, uid: &str| {
        record(minutes(minute), action, decision, uid, "alice")
    };
    let started = |uid: &str| of(1, Action::RunStarted, Decision::Allow, uid);
    let approved = started("uid-0")
        .detail("approvedBy", "bob (security)")
        .detail("ticket", "INC-42");
    // An emergency has two records, in either order.
    let granted = of(1, Action::EmergencyGranted, Decision::Allow, "uid-1");
    let ended = of(5, Action::RunEnded, Decision::End, "uid-0");
    let entries: Vec<Entry> = [approved, granted, started("uid-1"), ended]
        .into_iter()
        .map(|record| chain.append(record, &key))
        .collect();
    let accounts = accounts(&entries);
    assert_eq!((accounts.requests(), accounts.approved()), ((2, 2), 1));
    let summary = accounts.summary();
    let rows: Vec<&str> = summary.lines().skip(1).collect();
    for part in [",INC-42,bob (security),", ",RunEnded (Test),"] {
        assert!(rows[0].contains(part), "{}", rows[0]);
    }
    assert!(rows[1].contains(",nobody (emergency),"), "{}", rows[1]);
}

#[test]
fn an_attestation_is_one_line_and_no_request() {
    let key = key();
    let writer = Writer::new(names::WEBHOOK, "oz-0", BEGAN, 1);
    let (mut chain, first) = Chain::begin(writer, BEGAN, &[], &key);
    let at = minutes(1);
    let mut attested = record(
        at,
        Action::EntitlementsAttested,
        Decision::Allow,
        "",
        "erin",
    );
    attested.request.name = "attestation-1".to_owned();
    let attested = attested
        .detail("entitlements", "sha256:1")
        .detail("file", "sha256:2")
        .detail("kept", "40")
        .detail("removed", "2")
        .detail("gaps", "0");
    let entries = [first, chain.append(attested, &key)];
    let told = accounts(&entries).attestations();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    let row = "EntitlementsAttested,erin,shop,attestation-1,sha256:1,sha256:2,40,2,0,sha256:";
    assert!(lines[1].contains(row), "{told}");
    assert_eq!(accounts(&entries).requests(), (0, 0));
}

#[test]
fn a_review_is_one_line_and_so_is_one_that_is_overdue() {
    let key = key();
    let writer = Writer::new(names::WEBHOOK, "oz-0", BEGAN, 1);
    let (mut chain, first) = Chain::begin(writer, BEGAN, &[], &key);
    let of = |minute: i64, action: Action, decision: Decision, user: &str| {
        let record = record(minutes(minute), action, decision, "uid-1", user);
        let record = record.detail("requester", "alice");
        record.detail("dueAt", minutes(60).to_string())
    };
    let overdue = of(61, Action::ReviewOverdue, Decision::Note, "");
    let refused = of(62, Action::ReviewRefused, Decision::Deny, "alice");
    let given = of(63, Action::ReviewGiven, Decision::Allow, "carol");
    let given = given
        .detail("finding", "Justified")
        .detail("reason", "=the pager rang");
    let entries = [first]
        .into_iter()
        .chain([overdue, refused, given].map(|record| chain.append(record, &key)));
    let entries: Vec<Entry> = entries.collect();
    let told = accounts(&entries).reviews();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    for (line, expected) in [
        (1, "ReviewOverdue,Note,,,alice,"),
        (2, "ReviewRefused,Deny,alice,,alice,"),
        (3, "ReviewGiven,Allow,carol,Justified,alice,"),
    ] {
        assert!(lines[line].contains(expected), "{told}");
    }
    // A spreadsheet must not interpret it as a formula.
    assert!(!told.contains(",=the pager"), "{told}");
}

#[test]
fn a_sample_is_drawn_again_by_its_seed_and_another_by_another() {
    let (entries, _) = trail(40);
    let accounts = accounts(&entries);
    let drawn = |size, seed| accounts.sample(&Sample { size, seed });
    assert_eq!(drawn(5, 1), drawn(5, 1));
    assert_ne!(drawn(5, 1), drawn(5, 2));
    assert_eq!(drawn(5, 1).lines().count(), 6);
    assert_eq!(drawn(50, 1).lines().count(), 41);
    assert!(
        drawn(6, 1).starts_with(&drawn(5, 1)),
        "a larger sample has the smaller one in it"
    );
    // The result of sha256sum(1).
    let known = "123bc95dd0eba1e9d9016e253ddce9b305ef5d4dbaf59a3d0cf336a60125b49e";
    assert_eq!(rank(1, "uid-0"), known);
}

#[test]
fn a_seal_is_the_operators_own_and_of_these_sums() {
    let mut sums = Sums::default();
    sums.add("a", "00".to_owned());
    let order = SealOrder {
        sums: sums.digest(),
        by: "carol".to_owned(),
    };
    let text = serde_json::to_string(&order).unwrap();
    assert_eq!(SealOrder::read(order.key(), &text).as_ref(), Ok(&order));
    let mut trust = Trust::pinned([key().public().as_str()]).unwrap();
    let webhook = AuditKey::new(&[6; 32]);
    let (_, vouched) = key().vouch(names::WEBHOOK, &webhook.public()).unwrap();
    trust.extend(&[vouched]);
    let sealed_by = |component: &str, key: &AuditKey, record: Record| {
        let writer = Writer::new(component, "oz-0", BEGAN, 1);
        let (mut chain, _) = Chain::begin(writer, BEGAN, &[], key);
        sealed(&chain.append(record, key).value(), &trust)
    };
    let seal = sealed_by(names::OPERATOR, &key(), order.record(BEGAN)).unwrap();
    assert_eq!((seal.sums, seal.by), (sums.digest(), "carol".to_owned()));
    assert_eq!(
        sealed_by(names::WEBHOOK, &webhook, order.record(BEGAN)),
        Err(SealError::Other)
    );
    for (component, key) in [(names::OPERATOR, &webhook), (names::WEBHOOK, &key())] {
        let refused = sealed_by(component, key, order.record(BEGAN));
        assert!(
            matches!(refused, Err(SealError::Signature(_))),
            "{component}"
        );
    }
    let other = AuditKey::new(&[8; 32]);
    let foreign = sealed_by(names::OPERATOR, &other, order.record(BEGAN));
    assert!(matches!(foreign, Err(SealError::Signature(_))));
    let granted = record(minutes(2), Action::AccessGranted, Decision::Allow, "1", "a");
    let granted = granted.detail("sums", sums.digest());
    assert_eq!(
        sealed_by(names::OPERATOR, &key(), granted),
        Err(SealError::Other)
    );
}

#[test]
fn an_order_to_seal_is_a_digest_and_nothing_else() {
    let digest = "0".repeat(64);
    let of = |sums: &str| json!({ "sums": sums, "by": "x".repeat(100_000) }).to_string();
    let good = SealOrder::read(&digest, &of(&format!("sha256:{digest}"))).unwrap();
    assert!(good.record(BEGAN).message.len() < 500);
    for (key, text) in [
        (&digest[..], "{}".to_owned()),
        (&digest, "x".to_owned()),
        (&digest, of(&digest)),
        (&digest, of("sha256:00")),
        (&digest, of(&format!("sha256:{}", "G".repeat(64)))),
        ("other", of(&format!("sha256:{digest}"))),
    ] {
        assert!(SealOrder::read(key, &text).is_err(), "{key} {text}");
    }
}

#[test]
fn changed_sums_name_differing_file() {
    let mut sums = Sums::default();
    sums.add("a", "00".to_owned());
    sums.add("b", "11".to_owned());
    assert_eq!(sums.difference(&sums.text()), None);
    let changed = sums.text().replace("11", "12");
    assert!(
        sums.difference(&changed)
            .unwrap()
            .to_string()
            .starts_with("b ")
    );
    let more = sums.text() + "22  c\n";
    assert!(
        sums.difference(&more)
            .unwrap()
            .to_string()
            .contains("do not exist")
    );
}

#[test]
fn each_control_names_evidence_and_gaps() {
    let (entries, _) = trail(3);
    let manifest = Manifest {
        gaps: BTreeSet::from(["pods | <b>\u{1b}[2J could not be listed".to_owned()]),
        ..manifest(0, 10)
    };
    let text = controls(
        &manifest,
        &accounts(&entries),
        &Entitlements::default(),
        &[],
        &oz_trail::verify::Report::default(),
    );
    for control in [
        "CC6.1", "CC6.2", "CC6.3", "A.5.18", "A.8.2", "A.8.15", "7.2.4", "10.2.1", "AC-2(2)",
        "AC-5", "AC-6(9)",
    ] {
        let rows = text
            .lines()
            .filter(|line| line.contains(&format!("{control} |")));
        assert_eq!(rows.count(), 1, "{control}");
    }
    assert!(
        text.contains("- Granted by approval of others: 3\n"),
        "{text}"
    );
    assert!(
        text.contains("- pods ' 'b' '2J could not be listed\n"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
}
