use oz_trail::verify::{Evidence, Fault, Terms, verify};
use oz_trail::{Action, Decision, Mode, Trust};

use super::*;

const BOTH: &[Outlet] = &[Outlet::Log, Outlet::Objects];

fn ledger(required: &[Outlet]) -> Ledger {
    let origin = Origin {
        component: "oz-operator".to_owned(),
        replica: "oz-0".to_owned(),
        nonce: 7,
        known: Vec::new(),
        details: Vec::new(),
        key: AuditKey::new(&[1; 32]),
    };
    Ledger::new(origin, required.iter().copied().collect())
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::constant(1_790_000_000 + seconds, 0)
}

fn granted(number: i64) -> Record {
    Record::about(
        timestamp(number),
        Action::AccessGranted,
        Decision::Allow,
        &number.to_string(),
        "Success",
        "granted",
    )
}

fn terms() -> Terms {
    let public = AuditKey::new(&[1; 32]).public();
    Terms {
        trust: Trust::pinned([public.as_str()]).unwrap(),
        ..Terms::default()
    }
}

fn is_acknowledged(receiver: &mut oneshot::Receiver<()>) -> bool {
    receiver.try_recv().is_ok()
}

#[test]
fn a_record_is_durable_when_it_is_everywhere_and_not_before() {
    let mut ledger = ledger(BOTH);
    let (Submitted::Under { mut log, mut all }, written) = ledger.submit(granted(1), timestamp(1))
    else {
        panic!("not taken")
    };
    assert_eq!(written.len(), 2);
    ledger.arrived(2, Outlet::Log);
    assert!(is_acknowledged(&mut log) && !is_acknowledged(&mut all));
    ledger.arrived(2, Outlet::Objects);
    assert!(is_acknowledged(&mut all));
    // The first record of the chain has not arrived, so no checkpoint is possible.
    assert!(ledger.checkpoint().is_none());
    ledger.arrived(1, Outlet::Objects);
    ledger.arrived(1, Outlet::Log);
    assert_eq!(ledger.checkpoint().unwrap().head.seq, 2);
    ledger.published(2);
    assert!(ledger.checkpoint().is_none() && ledger.unsigned() == 0);
}

#[test]
fn record_rejected_by_sink_is_not_reported_durable_and_leaves_gap() {
    let mut ledger = ledger(BOTH);
    let (Submitted::Under { mut log, mut all }, mut written) =
        ledger.submit(granted(1), timestamp(1))
    else {
        panic!("not taken")
    };
    let (_, more) = ledger.submit(granted(2), timestamp(2));
    written.extend(more);
    ledger.lost(2, Outlet::Objects);
    ledger.arrived(2, Outlet::Log);
    assert!(
        is_acknowledged(&mut log) && all.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    );
    // A caller that retries must not get the result of a written record.
    let (again, more) = ledger.submit(granted(1), timestamp(3));
    assert!(matches!(again, Submitted::Under { .. }));
    written.extend(more);
    for seq in [1, 3] {
        ledger.arrived(seq, Outlet::Log);
        ledger.arrived(seq, Outlet::Objects);
    }
    let (again, more) = ledger.submit(granted(1), timestamp(3));
    assert!(matches!(again, Submitted::Under { .. }) && more.is_empty());

    let mut evidence = Evidence::default();
    for Written { entry, .. } in written.into_iter().filter(|one| one.entry.link.seq != 2) {
        let event = oz_trail::AuditEvent::from(entry);
        evidence.object(&serde_json::to_value(event).unwrap());
    }
    let checkpoint = serde_json::to_string(&ledger.checkpoint().unwrap()).unwrap();
    evidence.checkpoint("ConfigMap", &checkpoint);
    let report = verify(evidence, &terms());
    let faults: Vec<_> = report
        .problems
        .iter()
        .map(|one| (one.fault, one.seq))
        .collect();
    assert_eq!(faults, [(Fault::Missing, Some(2))]);
}

#[test]
fn duplicate_of_stored_record_is_reported_as_stored() {
    let mut ledger = ledger(BOTH);
    drop(ledger.submit(granted(1), timestamp(1)));
    for outlet in BOTH {
        ledger.arrived(2, *outlet);
    }
    // The first record of the chain is still in progress.
    let (Submitted::Under { mut log, mut all }, _) = ledger.submit(granted(1), timestamp(1)) else {
        panic!("not known")
    };
    assert!(is_acknowledged(&mut log) && is_acknowledged(&mut all));
}

#[test]
fn the_same_fact_is_not_written_twice() {
    let mut ledger = ledger(&[Outlet::Log]);
    let (_, written) = ledger.submit(granted(1), timestamp(1));
    assert_eq!(written.len(), 2);
    let (again, written) = ledger.submit(granted(1), timestamp(1));
    let Submitted::Under { mut log, .. } = again else {
        panic!("not known")
    };
    assert!(written.is_empty());
    for seq in [1, 2] {
        ledger.arrived(seq, Outlet::Log);
    }
    assert!(is_acknowledged(&mut log));
    let (later, written) = ledger.submit(granted(1), timestamp(2));
    assert!(matches!(later, Submitted::Done) && written.is_empty());
}

#[test]
fn full_ledger_rejects_records_without_gap_in_chain() {
    let mut ledger = ledger(BOTH);
    let mut lines = Vec::new();
    for number in 0..6_000 {
        let (_, written) = ledger.submit(granted(number), timestamp(0));
        lines.extend(written.iter().map(|written| written.line.to_string()));
    }
    assert_eq!(lines.len(), BACKLOG);
    assert!(matches!(
        ledger.submit(granted(9_000), timestamp(0)).0,
        Submitted::Full
    ));
    for seq in 1..=ledger.waiting() as u64 {
        for outlet in BOTH {
            ledger.arrived(seq, *outlet);
        }
    }
    let (_, written) = ledger.submit(granted(9_001), timestamp(0));
    lines.extend(written.iter().map(|written| written.line.to_string()));
    let mut evidence = Evidence::default();
    evidence.log("log", &lines.join("\n"));
    let report = verify(evidence, &terms());
    assert!(report.is_whole(), "{:?}", report.problems);
}

fn connected(user: &str, number: i64) -> Record {
    let mut record = Record::about(
        timestamp(0),
        Action::SessionOpened,
        Decision::Allow,
        &format!("{user} {number}"),
        "Granted",
        "may connect",
    );
    record.user.get_or_insert_default().user = user.to_owned();
    record.detail(Mode::DETAIL, Mode::Enforcing.title())
}

#[test]
fn connections_fill_half_of_the_backlog_and_leave_the_rest_to_other_records() {
    let mut ledger = ledger(BOTH);
    ledger.limit_connections(None);
    let beyond = (0..6_000).find_map(|number| {
        match ledger.submit(connected("alice", number), timestamp(0)) {
            (Submitted::Beyond(beyond), _) => Some(beyond),
            _ => None,
        }
    });
    assert_eq!(beyond, Some(Beyond::Backlog));
    assert_eq!(ledger.waiting(), CONNECTION_BACKLOG);
    let (granted, written) = ledger.submit(granted(1), timestamp(0));
    assert!(matches!(granted, Submitted::Under { .. }) && written.len() == 1);
}

#[test]
fn connections_beyond_the_quota_of_a_user_are_not_taken_and_those_of_others_are() {
    let mut ledger = ledger(BOTH);
    ledger.limit_connections(NonZeroU32::new(5));
    let taken = |ledger: &mut Ledger, user: &str, number| {
        let submitted = ledger.submit(connected(user, number), timestamp(0)).0;
        match submitted {
            Submitted::Under { .. } => None,
            Submitted::Beyond(beyond) => Some(beyond),
            Submitted::Done | Submitted::Full => panic!("neither taken nor exceeded"),
        }
    };
    for number in 0..5 {
        assert_eq!(taken(&mut ledger, "mallory", number), None);
    }
    assert_eq!(
        taken(&mut ledger, "mallory", 5),
        Some(Beyond::Quota(Quota::Connections))
    );
    assert_eq!(taken(&mut ledger, "alice", 1), None);
    // The same review again is the same event.
    assert_eq!(taken(&mut ledger, "mallory", 4), None);
}

#[test]
fn records_that_are_far_apart_are_signed_themselves() {
    let mut ledger = ledger(&[Outlet::Log]);
    let signed = |written: &[Written]| -> Vec<bool> {
        written
            .iter()
            .map(|written| written.entry.link.signature.is_some())
            .collect()
    };
    assert_eq!(
        signed(&ledger.submit(granted(0), timestamp(0)).1),
        [true, false]
    );
    assert_eq!(signed(&ledger.submit(granted(1), timestamp(1)).1), [true]);
    let mut soon = granted(2);
    soon.time = timestamp(1);
    assert_eq!(signed(&ledger.submit(soon, timestamp(1)).1), [false]);
}
