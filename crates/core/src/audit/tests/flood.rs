//! Ten thousand refusals a minute cost a handful of records.

use jiff::{SignedDuration, Timestamp};

use super::support::{at, record};
use crate::audit::{Action, Admitted, Decision, Floodgate, Record, RequestRef};

fn denied(user: &str, number: i64, time: Timestamp) -> Record {
    let mut record = record(number);
    record.time = time;
    record.action = Action::RequestDenied;
    record.decision = Decision::Deny;
    record.reason = "NotAllowed".to_owned();
    record.user.as_mut().unwrap().user = user.to_owned();
    record
}

#[test]
fn ten_thousand_refusals_in_a_minute_are_three_records_and_a_summary() {
    let mut gate = Floodgate::default();
    let mut written = Vec::new();
    for number in 0..10_000 {
        let time = at(0) + SignedDuration::from_millis(number * 6);
        written.extend(gate.due(time));
        if let Admitted::Write(record) = gate.admit(denied("mallory", number, time)) {
            written.push(*record);
        }
    }
    let end = gate.next().unwrap();
    written.extend(gate.due(end));
    assert_eq!(written.len(), 4);
    let summary = written[3].repeated.as_ref().unwrap();
    assert_eq!((summary.count, summary.samples.len()), (9_997, 3));
    assert_eq!(summary.first, at(0) + SignedDuration::from_millis(18));
    assert_eq!(summary.last, at(0) + SignedDuration::from_millis(59_994));
    assert_eq!(written[3].user.as_ref().unwrap().user, "mallory");
    assert_eq!(gate.next(), None);
}

#[test]
fn what_is_not_a_refusal_is_always_written() {
    let mut gate = Floodgate::default();
    for number in 0..100 {
        assert!(matches!(gate.admit(record(number)), Admitted::Write(_)));
    }
    assert_eq!(gate.next(), None);
}

#[test]
fn one_user_does_not_hide_another() {
    let mut gate = Floodgate::default();
    for number in 0..100 {
        gate.admit(denied("mallory", number, at(0)));
    }
    let alice = gate.admit(denied("alice", 1, at(0)));
    assert!(matches!(alice, Admitted::Write(_)));
}

#[test]
fn many_names_take_no_more_memory_or_records_than_some() {
    let mut gate = Floodgate::default();
    let admitted = (0..5_000)
        .filter(|number| {
            let user = format!("user-{number}");
            matches!(
                gate.admit(denied(&user, *number, at(0))),
                Admitted::Write(_)
            )
        })
        .count();
    assert_eq!(admitted, 1_024 + 3);
    let due = gate.due(Timestamp::MAX);
    // It is nobody's in particular; whose it is, as far as it tells, is in the samples.
    let [summary] = due.as_slice() else {
        panic!("{due:?}")
    };
    assert!(summary.user.is_none() && summary.pod.is_none());
    assert_eq!(summary.request, RequestRef::default());
    let repeated = summary.repeated.as_ref().unwrap();
    assert_eq!(repeated.count, 5_000 - 1_024 - 3);
    assert!(repeated.samples[0].contains("user-1027"), "{repeated:?}");
}
