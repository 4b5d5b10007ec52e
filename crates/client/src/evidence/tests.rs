//! Bundles that were written and sealed, and each way to tamper with one.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use oz_api::{Requester, names};
use oz_compliance::entitlements::{Entitlements, sources};
use oz_compliance::evidence::{
    self as files, FORMAT, Manifest, ObjectDigest, Sample, SealOrder, Sums,
};
use oz_trail::verify::{Fault, Verdict};
use oz_trail::{
    Action, AuditKey, Chain, Checkpoint, Decision, Entry, Medium, Record, RequestRef, Writer,
};
use serde_json::Value;

use super::*;

const BEGAN: Timestamp = Timestamp::constant(1_790_000_000, 0);

fn key() -> AuditKey {
    AuditKey::new(&[7; 32])
}

/// Returns the webhook's key, for which the operator's key vouches.
fn webhook_key() -> AuditKey {
    AuditKey::new(&[17; 32])
}

fn seconds(number: i64) -> Timestamp {
    BEGAN + SignedDuration::from_secs(number)
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
            name: format!("of-{uid}"),
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

/// Returns a trail in which a request is approved, granted, used and over in each second; two writers record it, in
/// the order of a cluster's list.
fn trail(requests: i64) -> (Vec<Entry>, Vec<Checkpoint>) {
    let (key, webhooks) = (key(), webhook_key());
    let writer = |component| Writer::new(component, "0", BEGAN, 1);
    let (mut operator, first) = Chain::begin(writer(names::OPERATOR), BEGAN, &[], &key);
    let (mut webhook, second) = Chain::begin(writer(names::WEBHOOK), BEGAN, &[], &webhooks);
    let mut entries = vec![first, second];
    for number in 0..requests {
        let (at, uid) = (seconds(number), format!("uid-{number}"));
        let of = |action, decision, who: &str| record(at, action, decision, &uid, who);
        let (allow, end) = (Decision::Allow, Decision::End);
        let given = of(Action::ApprovalGiven, allow, "bob").detail("rules", "security");
        entries.push(webhook.append(given, &webhooks));
        let granted =
            of(Action::AccessGranted, allow, "alice").detail("approvedBy", "bob (security)");
        entries.push(operator.append(granted, &key));
        entries.push(webhook.append(of(Action::SessionOpened, allow, "alice"), &webhooks));
        entries.push(operator.append(of(Action::AccessExpired, end, "alice"), &key));
    }
    let last = |component: &str| {
        let mut entries = entries.iter().rev();
        entries
            .find(|entry| entry.link.writer.component == component)
            .unwrap()
    };
    let checkpoints = [(names::OPERATOR, &key), (names::WEBHOOK, &webhooks)]
        .map(|(component, key)| Checkpoint::sign(last(component).head(&[Medium::Objects]), key));
    (entries, checkpoints.into())
}

fn gathered(checkpoints: &[Checkpoint], from: i64, to: i64) -> Gathered {
    let checkpoints = checkpoints.iter();
    Gathered {
        manifest: Manifest {
            format: FORMAT.to_owned(),
            from: seconds(from),
            to: seconds(to),
            sample: Some(Sample { size: 3, seed: 9 }),
            gaps: BTreeSet::new(),
        },
        keys: vec![
            key().published(None),
            key()
                .vouch(names::WEBHOOK, &webhook_key().public())
                .unwrap()
                .1,
        ],
        checkpoints: checkpoints
            .map(|one| (one.slot(), serde_json::to_string(one).unwrap()))
            .collect(),
        objects: vec![ObjectDigest {
            kind: "ExecAccessTemplate".to_owned(),
            namespace: "shop".to_owned(),
            name: "shell".to_owned(),
            uid: "uid-of-shell".to_owned(),
            digest: "sha256:00".to_owned(),
        }],
        entitlements: Entitlements::new(
            [sources::break_glass("=system:masters", "test")].into(),
            BTreeSet::new(),
        ),
    }
}

/// Returns the audit record that the operator writes for an order.
fn seal_of(sums: &Sums, key: &AuditKey) -> Value {
    let order = SealOrder {
        sums: sums.digest(),
        by: "carol".to_owned(),
    };
    let at = seconds(1_000_000);
    let writer = Writer::new(names::OPERATOR, "1", at, 1);
    Chain::begin(writer, at, &[], key)
        .0
        .append(order.record(at), key)
        .value()
}

fn made(gathered: Gathered, entries: &[Entry], key: Option<&AuditKey>) -> Vec<u8> {
    let mut assembly = Assembly::new(Cursor::new(Vec::new()), gathered).unwrap();
    for entry in entries {
        assembly.record(&entry.value()).unwrap();
    }
    let sealable = assembly.sealable().unwrap();
    let seal = key.map(|key| seal_of(&sealable.sums, key));
    sealable.finish(seal.as_ref()).unwrap().into_inner()
}

/// Returns a bundle about a part of a trail.
fn bundle() -> Vec<u8> {
    let (entries, checkpoints) = trail(12);
    made(gathered(&checkpoints, 3, 8), &entries, Some(&key()))
}

fn checked(bundle: &[u8]) -> Checked {
    check(bundle, &[key().public()])
}

fn problem(bundle: &[u8]) -> String {
    let checked = checked(bundle);
    assert_eq!(checked.verdict(), Verdict::Invalid, "{checked:?}");
    let of_records = checked.report.problems.iter().map(ToString::to_string);
    checked
        .problems
        .iter()
        .map(ToString::to_string)
        .chain(of_records)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the files of a bundle: name and content of each.
fn parts(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut reader = archive::Reader::new(bundle);
    let mut parts = Vec::new();
    while let Some((name, _)) = reader.next().unwrap() {
        parts.push((name, reader.whole(u64::MAX).unwrap().0));
    }
    parts
}

/// Returns an archive of these files, as an attacker creates it who knows everything except the audit key: with
/// correct sums.
fn again(mut parts: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let names: Vec<&'static str> = parts
        .iter()
        .map(|(name, _)| &*name.clone().leak())
        .collect();
    let mut writer = archive::Writer::new(Cursor::new(Vec::new()));
    for (name, (_, content)) in names.into_iter().zip(&mut parts) {
        if name == files::SUMS {
            *content = writer.sums().text().into_bytes();
        }
        writer.add(name, content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Returns the bundle with a change in one of its files, and with matching sums.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut parts = parts(&bundle());
    let (_, content) = parts.iter_mut().find(|(found, _)| found == name).unwrap();
    let before = content.clone();
    change(content);
    assert_ne!(*content, before);
    again(parts)
}

fn without_line(content: &mut Vec<u8>, mut which: impl FnMut(&str) -> bool) {
    let text = String::from_utf8(content.clone()).unwrap();
    let mut done = false;
    let kept = text.split_inclusive('\n').filter(|line| {
        let goes = !done && which(line);
        done |= goes;
        !goes
    });
    *content = kept.collect::<String>().into_bytes();
}

#[test]
fn a_bundle_is_whole_is_sealed_and_is_the_same_each_time() {
    let bundle = bundle();
    let checked = checked(&bundle);
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    assert_eq!(checked.report.problems, []);
    assert_eq!(checked.verdict(), Verdict::Valid);
    let seal = checked.seal.unwrap();
    assert_eq!((&seal.by[..], seal.at), ("carol", seconds(1_000_000)));
    assert_eq!(
        (checked.accounts.records(), checked.accounts.requests()),
        (20, (5, 5))
    );
    assert_eq!(bundle, self::bundle());
    let names: Vec<String> = parts(&bundle).into_iter().map(|(name, _)| name).collect();
    let mut expected = checked.manifest.unwrap().files();
    expected.extend([files::SUMS, files::SEAL]);
    assert_eq!(names, expected);
    assert_eq!(again(parts(&bundle)), bundle);
}

#[test]
fn without_a_pinned_key_those_of_the_bundle_count_and_another_is_not_known() {
    assert_eq!(check(&bundle()[..], &[]).verdict(), Verdict::Valid);
    let other = AuditKey::new(&[8; 32]).public();
    let checked = check(&bundle()[..], &[other]);
    // Neither the audit records nor the seal have a signature by a trusted key.
    assert_eq!(checked.verdict(), Verdict::Invalid);
    assert!(
        checked
            .problems
            .iter()
            .any(|problem| problem.to_string().contains("neither pinned"))
    );
    let faults = checked.report.problems.iter().map(|one| one.fault);
    assert!(faults.into_iter().any(|fault| fault == Fault::UnknownKey));
}

#[test]
fn every_flipped_byte_is_found() {
    let bundle = bundle();
    // Flipping each byte of the long files would take minutes; these include all kinds of positions.
    let (mut at, mut step) = (0, 0);
    while at < bundle.len() {
        let mut flipped = bundle.clone();
        flipped[at] ^= [0x01, 0x20, 0x80][at % 3];
        assert_ne!(checked(&flipped).verdict(), Verdict::Valid, "byte {at}");
        step = (step * 31 + 7) % 97;
        at += 1 + step;
    }
}

#[test]
fn every_byte_of_a_header_and_after_a_file_counts() {
    let bundle = bundle();
    let size = parts(&bundle)[0].1.len();
    let padding = 512 + size..512 + size.next_multiple_of(512);
    for at in (0..512)
        .chain(padding)
        .chain(bundle.len() - 1024..bundle.len())
    {
        let mut flipped = bundle.clone();
        flipped[at] ^= 0x01;
        assert_eq!(checked(&flipped).verdict(), Verdict::Invalid, "byte {at}");
    }
}

#[test]
fn an_approval_that_was_left_out_is_found_wherever_it_was_left_out() {
    let given = |line: &str| line.contains("ApprovalGiven");
    // An attacker who does not know of the sums, and one who does.
    let of_records = changed(files::RECORDS, |content| without_line(content, given));
    assert!(
        problem(&of_records).contains("Missing in oz-webhook"),
        "{}",
        problem(&of_records)
    );
    let of_table = changed(files::APPROVALS, |content| without_line(content, given));
    assert!(
        problem(&of_table).contains("of approvals.csv does not follow"),
        "{}",
        problem(&of_table)
    );
    // The author of the bundle omits the approval before the seal.
    let (mut entries, checkpoints) = trail(12);
    let at = entries.iter().position(|entry| {
        entry.record.time == seconds(5) && entry.record.action == Action::ApprovalGiven
    });
    entries.remove(at.unwrap());
    let made = made(gathered(&checkpoints, 3, 8), &entries, Some(&key()));
    assert!(problem(&made).contains("Missing in oz-webhook"));
}

#[test]
fn an_added_row_is_found_in_every_file() {
    let bundle = bundle();
    for (name, content) in parts(&bundle) {
        if [files::SUMS, files::SEAL].contains(&name.as_str()) {
            continue;
        }
        let text = String::from_utf8(content).unwrap();
        let again = changed(&name, |content| {
            let line = text.lines().last().unwrap();
            content.extend(format!("{line}\n").into_bytes());
        });
        let problem = problem(&again);
        assert!(
            problem.contains("signed the sums") || problem.contains(&name),
            "{name}: {problem}"
        );
    }
    // An audit record that the attacker wrote.
    let forged = changed(files::RECORDS, |content| {
        let text = String::from_utf8(content.clone()).unwrap();
        let line = text
            .lines()
            .next()
            .unwrap()
            .replace("alice", "mallory")
            .replace("bob", "mallory");
        content.extend(format!("{line}\n").into_bytes());
    });
    assert!(problem(&forged).contains("Altered"), "{}", problem(&forged));
}

#[test]
fn bundle_changed_without_audit_key_is_detected() {
    for (name, from, to) in [
        (files::ENTITLEMENTS, "=system:masters", "nobody"),
        (files::OBJECTS, "sha256:00", "sha256:11"),
        (files::MANIFEST, "\"seed\": 9", "\"seed\": 8"),
    ] {
        let again = changed(name, |content| {
            let text = String::from_utf8(content.clone()).unwrap();
            *content = text.replace(from, to).into_bytes();
        });
        assert!(
            problem(&again).contains("the audit key signed the sums"),
            "{name}"
        );
    }
    // A seal by another key, and a seal over other sums.
    let (entries, checkpoints) = trail(12);
    let gathered = gathered(&checkpoints, 3, 8);
    let foreign = made(gathered.clone(), &entries, Some(&AuditKey::new(&[8; 32])));
    assert!(problem(&foreign).contains("the seal proves nothing"));
    let mut assembly = Assembly::new(Cursor::new(Vec::new()), gathered).unwrap();
    for entry in &entries {
        assembly.record(&entry.value()).unwrap();
    }
    let sealable = assembly.sealable().unwrap();
    let seal = seal_of(&Sums::default(), &key());
    let other = sealable.finish(Some(&seal)).unwrap().into_inner();
    assert!(problem(&other).contains("the audit key signed the sums"));
    // A signed audit record that is not a seal.
    let granted = parts(&bundle())
        .into_iter()
        .find(|(name, _)| name == files::BOUNDARY);
    let granted = String::from_utf8(granted.unwrap().1).unwrap();
    let value: Value = serde_json::from_str(granted.lines().next().unwrap()).unwrap();
    let mut parts = parts(&bundle());
    parts.last_mut().unwrap().1 = text(&value).into_bytes();
    assert!(problem(&again(parts)).contains("not a seal of evidence by the operator"));
}

#[test]
fn without_a_seal_it_is_not_checked_and_with_other_sums_not_whole() {
    let (entries, checkpoints) = trail(12);
    let unsealed = made(gathered(&checkpoints, 3, 8), &entries, None);
    let found = checked(&unsealed);
    assert_eq!(
        (found.verdict(), found.problems.len()),
        (Verdict::Unchecked, 0)
    );
    let mut parts = parts(&bundle());
    let sums = parts
        .iter()
        .position(|(name, _)| name == files::SUMS)
        .unwrap();
    let mut writer = archive::Writer::new(Cursor::new(Vec::new()));
    parts[sums].1 = b"00  manifest.json\n".to_vec();
    for (name, content) in parts {
        writer.add(name.leak(), &content).unwrap();
    }
    let replaced = writer.finish().unwrap().into_inner();
    assert!(problem(&replaced).contains("SHA256SUMS: manifest.json has another digest"));
}

#[test]
fn truncated_bundle_is_detected_at_any_length() {
    let bundle = bundle();
    for length in (0..bundle.len()).step_by(509).chain([bundle.len() - 1]) {
        let problem = problem(&bundle[..length]);
        assert!(problem.contains("truncated"), "{length}: {problem}");
    }
    let more = [&bundle[..], &[0]].concat();
    assert!(problem(&more).contains("data after the end"));
}

/// Returns an archive with one more entry at its beginning.
fn with_entry(change: impl FnOnce(&mut tar::Header), content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_path("oz-evidence/manifest.json").unwrap();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    change(&mut header);
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(bundle());
    archive
}

fn set_name(header: &mut tar::Header, name: &str) {
    let bytes = &mut header.as_old_mut().name;
    bytes.fill(0);
    bytes[..name.len()].copy_from_slice(name.as_bytes());
}

#[test]
fn an_archive_has_plain_files_of_known_names_and_nothing_else() {
    for name in [
        "../../etc/passwd",
        "/etc/passwd",
        "oz-evidence/../x",
        "oz-evidence/..",
        "oz-evidence/a/b",
        "oz-evidence/",
        "manifest.json",
        "\u{1b}[2J",
    ] {
        let archive = with_entry(|header| set_name(header, name), b"x");
        let problem = problem(&archive);
        assert!(
            problem.contains("not a file of a bundle"),
            "{name}: {problem}"
        );
        assert!(!problem.contains('\u{1b}'));
    }
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Directory,
        tar::EntryType::Char,
        tar::EntryType::Fifo,
        tar::EntryType::GNULongName,
        tar::EntryType::GNUSparse,
        tar::EntryType::XHeader,
    ] {
        let archive = with_entry(
            |header| {
                header.set_entry_type(kind);
                if kind.is_symlink() || kind.is_hard_link() {
                    header.set_link_name("/etc/passwd").unwrap();
                }
            },
            b"",
        );
        assert!(problem(&archive).contains("not a plain file"), "{kind:?}");
    }
    let unknown = with_entry(|header| set_name(header, "oz-evidence/other.txt"), b"x");
    assert!(problem(&unknown).contains("has other.txt instead of manifest.json"));
    let manifest = parts(&bundle())[0].1.clone();
    let twice = with_entry(|_| {}, &manifest);
    assert!(
        problem(&twice).contains("manifest.json in it twice"),
        "{}",
        problem(&twice)
    );
}

#[test]
fn a_huge_file_is_refused_before_it_is_read() {
    for (size, said) in [
        (u64::MAX, "longer than"),
        (5 << 30, "longer than"),
        (65 << 20, "too long"),
    ] {
        let archive = with_entry(|header| header.set_size(size), b"");
        assert!(
            problem(&archive).contains(said),
            "{size}: {}",
            problem(&archive)
        );
    }
    // A line without an end, in a file with the correct length.
    let mut bundle = Vec::new();
    let mut writer = archive::Writer::new(Cursor::new(&mut bundle));
    for (name, content) in parts(&self::bundle()).into_iter().take(3) {
        writer.add(name.leak(), &content).unwrap();
    }
    writer.add(files::RECORDS, &vec![b'{'; 5 << 20]).unwrap();
    writer.finish().unwrap();
    assert!(problem(&bundle).contains("line 1 of records.jsonl is too long"));
    // Lines that are not audit records.
    let junk = changed(files::RECORDS, |content| *content = b"x\n".repeat(1_000));
    assert!(problem(&junk).contains("more than 100 unexpected lines"));
}

/// Measures the duration, which `--nocapture` prints.
#[test]
fn evidence_of_a_thousand_requests() {
    let (entries, checkpoints) = trail(1_000);
    let gathered = gathered(&checkpoints, 0, 1_000);
    let began = Instant::now();
    let bundle = made(gathered, &entries, Some(&key()));
    let (written, began) = (began.elapsed(), Instant::now());
    let checked = checked(&bundle);
    assert_eq!(checked.verdict(), Verdict::Valid);
    let (records, length) = (checked.accounts.records(), bundle.len());
    eprintln!(
        "{records} records, {length} bytes: written in {written:?}, checked in {:?}",
        began.elapsed()
    );
}
