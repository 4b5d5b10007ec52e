//! Tests of flood control: ten thousand refusals a minute, and four million sessions a day, cause few records, and
//! their counts add up.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};

use super::support::{record, timestamp};
use crate::{Action, Admitted, Decision, FloodCounter, Mode, Quota, Record, Repeated, RequestRef};

fn denied(user: &str, number: i64, time: Timestamp) -> Record {
    let mut record = record(number);
    record.time = time;
    record.action = Action::RequestDenied;
    record.decision = Decision::Deny;
    record.reason = "NotAllowed".to_owned();
    record.user.as_mut().unwrap().user = user.to_owned();
    record
}

/// Returns a session of mallory by one grant, running `command`.
fn opened(command: &str, number: i64, time: Timestamp) -> Record {
    let mut record = record(1);
    record.id = format!("session-{number}");
    record.time = time;
    record.action = Action::SessionOpened;
    record.reason = "Granted".to_owned();
    record.user.as_mut().unwrap().user = "mallory".to_owned();
    record
        .detail("way", "exec")
        .detail("commandDigest", command)
}

/// A flood counter, and the records that it admitted.
#[derive(Default)]
struct Written {
    gate: FloodCounter,
    next: Option<Timestamp>,
    records: Vec<Record>,
}

impl Written {
    fn admit(&mut self, record: Record) {
        if self.next.is_some_and(|next| next <= record.time) {
            self.records.extend(self.gate.due(record.time));
            self.next = self.gate.next();
        }
        if let Admitted::Write(record) = self.gate.admit(record) {
            self.records.push(*record);
            self.next = self.gate.next();
        }
    }

    fn end(mut self) -> Vec<Record> {
        self.records.extend(self.gate.due(Timestamp::MAX));
        assert_eq!(self.gate.next(), None);
        self.records
    }
}

/// Returns the number of events, over all records.
fn counted(records: &[Record]) -> u64 {
    let count = |record: &Record| record.repeated.as_ref().map_or(1, |several| several.count);
    records.iter().map(count).sum()
}

#[test]
fn ten_thousand_refusals_in_a_minute_are_three_records_and_a_summary() {
    let mut written = Written::default();
    for number in 0..10_000 {
        let time = timestamp(0) + SignedDuration::from_millis(number * 6);
        written.admit(denied("mallory", number, time));
    }
    let written = written.end();
    assert_eq!(written.len(), 4);
    let summary = written[3].repeated.as_ref().unwrap();
    assert_eq!((summary.count, summary.samples.len()), (9_997, 3));
    assert_eq!(
        summary.first,
        timestamp(0) + SignedDuration::from_millis(18)
    );
    assert_eq!(
        summary.last,
        timestamp(0) + SignedDuration::from_millis(59_994)
    );
    assert_eq!(written[3].user.as_ref().unwrap().user, "mallory");
}

#[test]
fn decisions_of_oz_are_never_suppressed() {
    let mut gate = FloodCounter::default();
    for number in 0..100 {
        assert!(matches!(gate.admit(record(number)), Admitted::Write(_)));
    }
    assert_eq!(gate.next(), None);
}

/// Returns the minutes for which sessions are opened: three hours, and with `OZ_LONG` a day. Each minute counts on its
/// own.
fn minutes() -> i64 {
    let is_long = std::env::var_os("OZ_LONG").is_some_and(|value| value == "1");
    60 * if is_long { 24 } else { 3 }
}

/// Returns the records of hours of sessions, one each 20 ms, by each of these grants in turn.
fn hours_of(grants: &[Record]) -> Vec<Record> {
    let mut written = Written::default();
    let sessions = 50 * 60 * minutes();
    for (number, grant) in (0..sessions).zip(grants.iter().cycle()) {
        let time = timestamp(0) + SignedDuration::from_millis(number * 20);
        written.admit(Record {
            time,
            ..grant.clone()
        });
    }
    let written = written.end();
    assert_eq!(counted(&written), u64::try_from(sessions).unwrap());
    written
}

/// Returns a session with its distinguishing fields only, since a day has millions of them.
fn sparse(user: &str, pod: &str) -> Record {
    let session = opened("sh", 1, timestamp(0));
    let mut sparse = Record {
        action: session.action,
        decision: session.decision,
        reason: session.reason,
        details: session.details,
        ..Record::default()
    };
    sparse.user.get_or_insert_default().user = user.to_owned();
    sparse.pod.get_or_insert_default().name = pod.to_owned();
    sparse.request.uid = format!("uid-of-{user}-in-{pod}");
    sparse
}

#[test]
fn fifty_sessions_a_second_for_hours_are_two_records_a_minute() {
    let written = hours_of(&[sparse("mallory", "web-0")]);
    assert_eq!(i64::try_from(written.len()).unwrap(), 2 * minutes());
    let (first, summary) = (&written[0], &written[1]);
    assert!(first.repeated.is_none(), "the first is a record of its own");
    assert_eq!(summary.repeated.as_ref().unwrap().count, 50 * 60 - 1);
    // Each record names the grant, by which the operator finds it at the end of the grant.
    let named = |one: &Record| one.request.uid == first.request.uid && one.details["way"] == "exec";
    assert!(written.iter().all(named));
}

#[test]
fn hours_of_sessions_in_fifty_pods_are_two_records_a_minute_for_each() {
    let users = (0..50).map(|number| (format!("user-{}", number % 10), format!("web-{number}")));
    let grants: Vec<Record> = users.map(|(user, pod)| sparse(&user, &pod)).collect();
    let written = hours_of(&grants);
    assert_eq!(i64::try_from(written.len()).unwrap(), 50 * 2 * minutes());
    let mut each = BTreeMap::<_, u64>::new();
    for record in &written {
        let of = (&record.user, &record.pod, &record.request.uid);
        *each.entry(format!("{of:?}")).or_default() += counted(std::slice::from_ref(record));
    }
    assert_eq!(each.len(), 50);
    assert!(
        each.values()
            .all(|count| *count == u64::try_from(60 * minutes()).unwrap())
    );
}

/// Returns such a session in an enforcing namespace, or by a break-glass group.
fn opened_in(mode: Mode, command: &str, number: i64, time: Timestamp) -> Record {
    let mut record = opened(command, number, time).detail(Mode::DETAIL, mode.title());
    if mode == Mode::BreakGlass {
        record.action = Action::BreakGlassOpened;
    }
    record
}

#[test]
fn command_after_many_others_has_its_own_record_where_connections_are_enforced() {
    for mode in [Mode::Enforcing, Mode::BreakGlass] {
        let mut written = Written::default();
        for number in 0..40 {
            let time = timestamp(0) + SignedDuration::from_millis(number * 10);
            written.admit(opened_in(mode, &number.to_string(), number, time));
        }
        let time = timestamp(0) + SignedDuration::from_millis(400);
        written.admit(opened_in(mode, "rm -rf /data", 40, time));
        let last = written.records.last().unwrap();
        assert_eq!(last.details["commandDigest"], "rm -rf /data");
        let written = written.end();
        assert_eq!(written.len(), 41, "{mode:?}");
        assert!(written.iter().all(|one| one.repeated.is_none()), "{mode:?}");
    }
}

#[test]
fn equal_connections_each_have_their_record_where_they_are_enforced() {
    let mut written = Written::default();
    for number in 0..50 {
        written.admit(opened_in(Mode::Enforcing, "sh", number, timestamp(0)));
    }
    let written = written.end();
    assert_eq!(written.len(), 50);
    assert!(written.iter().all(|one| one.repeated.is_none()));
}

#[test]
fn connections_beyond_a_users_quota_are_exceeded_and_those_of_others_are_not() {
    let mut gate = FloodCounter::with_connections_per_minute(NonZeroU32::new(10));
    let mut admit = |user: &str, number: i64, mode: Mode| {
        let mut record = opened_in(mode, "sh", number, timestamp(0));
        record.user.as_mut().unwrap().user = user.to_owned();
        if mode == Mode::BreakGlass {
            record.action = Action::BreakGlassOpened;
        }
        gate.admit(record)
    };
    for number in 0..100 {
        let admitted = admit("mallory", number, Mode::Enforcing);
        let is_written = matches!(admitted, Admitted::Write(_));
        assert_eq!(is_written, number < 10, "{admitted:?}");
        assert!(is_written || admitted == Admitted::Exceeded(Quota::Connections));
    }
    let alice = admit("alice", 1, Mode::Enforcing);
    assert!(matches!(alice, Admitted::Write(_)));
    // Break-glass is never refused, and each use has a record.
    for number in 0..100 {
        let admitted = admit("mallory", number, Mode::BreakGlass);
        assert!(matches!(admitted, Admitted::Write(_)), "{admitted:?}");
    }
    // In an observing namespace, sessions are counted as before.
    let counted = (0..100).map(|number| admit("mallory", number, Mode::Observing));
    assert!(
        counted
            .skip(1)
            .all(|one| matches!(one, Admitted::Counted { .. }))
    );
}

#[test]
fn record_of_an_unproven_caller_is_never_counted_with_those_of_an_api_server() {
    let mut written = Written::default();
    let forged = |number: i64| opened("sh", number, timestamp(0)).of_unproven("10.0.0.7");
    for number in 0..3 {
        written.admit(forged(number));
    }
    written.admit(opened("sh", 3, timestamp(0)));
    let last = written.records.last().unwrap();
    assert_eq!(
        (last.id.as_str(), last.unproven_peer()),
        ("session-3", None)
    );
    // All different records, which are counted together, are marked as well.
    for number in 0..100 {
        let other = opened(&number.to_string(), 10 + number, timestamp(0));
        written.admit(other.of_unproven("10.0.0.7"));
    }
    let written = written.end();
    assert_eq!(counted(&written), 104);
    let unmarked = written.iter().filter(|one| one.unproven_peer().is_none());
    assert_eq!(counted(&unmarked.cloned().collect::<Vec<_>>()), 1);
}

#[test]
fn records_of_unproven_callers_have_a_quota_together_and_cost_the_named_user_none() {
    let mut gate = FloodCounter::with_connections_per_minute(NonZeroU32::new(10));
    let admitted = (0..1_000).map(|number| {
        let forged = opened_in(Mode::Enforcing, "sh", number, timestamp(0));
        gate.admit(forged.of_unproven(&format!("10.0.0.{}", number % 9)))
    });
    let admitted: Vec<Admitted> = admitted.collect();
    let beyond = Admitted::Exceeded(Quota::Unproven);
    let exceeded = admitted.iter().filter(|one| **one == beyond).count();
    assert_eq!(exceeded, 700);
    // The quota applies to all statements, not only to connections.
    let forged = denied("victor", 1, timestamp(0)).of_unproven("10.0.0.7");
    assert_eq!(gate.admit(forged), beyond);
    let session = opened_in(Mode::Enforcing, "sh", 1_001, timestamp(0));
    assert!(matches!(gate.admit(session), Admitted::Write(_)));
}

#[test]
fn sessions_that_all_differ_are_a_few_dozen_records_a_minute() {
    let mut written = Written::default();
    let many = 50 * 600;
    for number in 0..many {
        let time = timestamp(0) + SignedDuration::from_millis(number * 20);
        written.admit(opened(&number.to_string(), number, time));
    }
    let written = written.end();
    assert!(written.len() <= 10 * 32, "{}", written.len());
    assert_eq!(counted(&written), u64::try_from(many).unwrap());
    assert!(written.iter().all(|one| one.request.uid == "uid-1"));
}

#[test]
fn a_session_that_is_counted_names_the_one_that_must_be_on_record_before_it() {
    let mut gate = FloodCounter::default();
    assert!(matches!(
        gate.admit(opened("sh", 1, timestamp(0))),
        Admitted::Write(_)
    ));
    let first = "session-1".to_owned();
    assert_eq!(
        gate.admit(opened("sh", 2, timestamp(1))),
        Admitted::Counted { first }
    );
    gate.lost("session-1");
    assert!(matches!(
        gate.admit(opened("sh", 3, timestamp(2))),
        Admitted::Write(_)
    ));
    let first = "session-3".to_owned();
    assert_eq!(
        gate.admit(opened("sh", 4, timestamp(3))),
        Admitted::Counted { first }
    );
}

#[test]
fn a_telling_refusal_is_not_hidden_behind_dull_ones() {
    let refused = |pod: &str, reason: &str, command: &str, number: i64| {
        let mut record = denied("mallory", number, timestamp(0)).detail("commandDigest", command);
        record.action = Action::SessionRefused;
        record.reason = reason.to_owned();
        record.pod.as_mut().unwrap().name = pod.to_owned();
        record
    };
    let mut written = Written::default();
    for number in 0..1_000 {
        written.admit(refused("web-0", "NoGrant", "sh", number));
    }
    for (pod, reason, command) in [
        ("vault-0", "NoGrant", "sh"),
        ("web-0", "CommandRefused", "sh"),
        ("web-0", "NoGrant", "cat /etc/shadow"),
    ] {
        written.admit(refused(pod, reason, command, 1));
        let last = written.records.last().unwrap();
        assert_eq!(
            (last.pod.as_ref().unwrap().name.as_str(), &*last.reason),
            (pod, reason)
        );
        assert_eq!(last.details["commandDigest"], command);
    }
    // Nor is it hidden behind uninteresting records that all differ: its subject is listed.
    for number in 0..1_000 {
        written.admit(refused("web-0", "NoGrant", &number.to_string(), number));
    }
    written.admit(refused("bank-0", "NoGrant", "sh", 1));
    let written = written.end();
    assert!(written.len() < 120, "{}", written.len());
    let several = written
        .iter()
        .find(|one| one.details.contains_key("about"))
        .unwrap();
    assert_eq!(several.details["about"], "bank-0, web-0");
    let samples = &several.repeated.as_ref().unwrap().samples;
    assert_eq!(samples.len(), 2);
}

#[test]
fn flood_of_one_user_does_not_suppress_another() {
    let mut gate = FloodCounter::default();
    for number in 0..100 {
        gate.admit(denied("mallory", number, timestamp(0)));
    }
    let alice = gate.admit(denied("alice", 1, timestamp(0)));
    assert!(matches!(alice, Admitted::Write(_)));
}

#[test]
fn many_names_take_no_more_memory_or_records_than_some() {
    let mut gate = FloodCounter::default();
    let admitted = (0..5_000)
        .filter(|number| {
            let user = format!("user-{number}");
            matches!(
                gate.admit(denied(&user, *number, timestamp(0))),
                Admitted::Write(_)
            )
        })
        .count();
    assert_eq!(admitted, 1_024 + 3);
    let due = gate.due(Timestamp::MAX);
    // The summary has no user; the samples contain the users, as far as possible.
    let [summary] = due.as_slice() else {
        panic!("{due:?}")
    };
    assert!(summary.user.is_none() && summary.pod.is_none());
    assert_eq!(summary.request, RequestRef::default());
    assert_eq!(summary.details["about"], "NotAllowed");
    let repeated = summary.repeated.as_ref().unwrap();
    assert_eq!(repeated.count, 5_000 - 1_024 - 3);
    assert!(repeated.samples[0].contains("user-1027"), "{repeated:?}");
}

#[test]
fn excess_sessions_of_distinct_requests_are_all_recorded() {
    let mut gate = FloodCounter::default();
    for number in 0..2_000 {
        let mut session = opened("sh", number, timestamp(0));
        session.request.uid = number.to_string();
        assert!(matches!(gate.admit(session), Admitted::Write(_)));
    }
}

/// Returns a report of the proxy of a run about `count` connections to one host.
fn egress(run: &str, host: &str, decision: Decision, count: u64, time: Timestamp) -> Record {
    let (action, reason) = match decision {
        Decision::Allow => (Action::EgressAllowed, "HostGranted"),
        _ => (Action::EgressRefused, "HostNotGranted"),
    };
    let subject = format!("{run} {host} {time}");
    let mut record = Record::about(time, action, decision, &subject, reason, host);
    record.request.namespace = "team".to_owned();
    record.request.uid = run.to_owned();
    record.repeated = (count > 1).then(|| Repeated {
        count,
        first: time,
        last: time,
        samples: Vec::new(),
    });
    record.detail("destination", host)
}

/// The original creates an object of the cluster for each blocked connection (R13).
#[test]
fn first_connection_of_run_to_each_host_is_recorded_and_repeats_are_counted_per_minute() {
    for decision in [Decision::Allow, Decision::Deny] {
        let mut written = Written::default();
        for second in 0..50 {
            for run in ["run-1", "run-2"] {
                for host in ["a.example.com", "b.example.com"] {
                    written.admit(egress(run, host, decision, 10, timestamp(second)));
                }
            }
        }
        assert_eq!(written.records.len(), 4, "{decision:?}");
        let records = written.end();
        assert_eq!(records.len(), 8, "{decision:?}");
        assert_eq!(counted(&records), 50 * 4 * 10);
    }
}

#[test]
fn run_with_many_destinations_does_not_use_up_the_records_of_another() {
    let mut written = Written::default();
    for number in 0..10_000 {
        let host = format!("h{number}.example.com");
        written.admit(egress("run-1", &host, Decision::Deny, 1, timestamp(0)));
    }
    let flooded = written.records.len();
    assert!(flooded <= 32, "{flooded}");
    written.admit(egress(
        "run-2",
        "a.example.com",
        Decision::Deny,
        1,
        timestamp(1),
    ));
    assert_eq!(written.records.len(), flooded + 1);
    assert_eq!(counted(&written.end()), 10_001);
}
