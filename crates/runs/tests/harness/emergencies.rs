//! Emergencies of runs: they begin without approvals and change tickets, for users whom the template names, and are
//! reviewed afterwards.

use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::conditions;
use oz_api::harness::RunPhase;
use oz_core::access::emergency::{on_record, subject};
use oz_core::controller::{Controller as _, Failure, Verdict};
use oz_core::lifecycle::seal::Keys;
use oz_runs::run::{Question, State};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::runs::{Begun, Submitted};
use crate::tickets::{condition, decide, records, seconds, submitted};
use crate::{now, policy};

/// The template's fields: bob must approve, a ticket is required, ada may declare an emergency that erin reviews.
fn fields() -> Value {
    let rules = json!([{"name": "security", "users": ["bob"]}]);
    json!({
        "approval": {"rules": rules, "timeout": "10m"},
        "ticket": {"check": "jira"},
        "emergency": {
            "users": ["ada"], "maxDuration": "10m", "openReviews": 2,
            "review": {"deadline": "24h", "users": ["erin"]},
        },
    })
}

/// An emergency of ada with this number of other unreviewed ones.
fn declared(unreviewed: usize) -> Submitted {
    let run = json!({"emergency": true, "reason": "INC-7: nothing works"});
    let mut submitted = submitted(run, &fields());
    let uids = (0..unreviewed).map(|number| format!("u-{number}"));
    submitted.facts.unreviewed = Some(Ok(uids.collect()));
    submitted
}

#[test]
fn emergency_begins_without_approval_and_ticket_and_is_proven_for_its_review() {
    let (decision, _) = decide(&declared(1), 0);
    let State::Confinable(decided, _) = &decision.state else {
        panic!("{:?}", decision.state)
    };
    assert_eq!(decided.approvals, []);
    assert_eq!(decided.ticket, None);
    assert_eq!(decided.timeout_seconds, Some(600));
    let due = now() + SignedDuration::from_hours(24);
    assert_eq!(decided.emergency.as_ref().unwrap().due_at, due);

    let records = records(&decision.plan);
    let actions: Vec<Action> = records.iter().map(|record| record.action).collect();
    assert_eq!(actions, [Action::RunStarted, Action::EmergencyGranted]);
    let keys = Keys::with_every_owner([[7; 32]]);
    let found = on_record(&keys, &records[1]).unwrap();
    assert_eq!(found.requester.user, "ada");
    assert_eq!(found.emergency.due_at, due);
    let about = subject::Subject::Emergency(found);
    let review = subject::opened(&keys, &about, Default::default(), None);
    let review = review.unwrap().unwrap();
    let reference = review.spec.access_request_ref.unwrap();
    assert_eq!(<&str>::from(reference.kind), "HarnessRun");
    assert_eq!(review.spec.emergency, "INC-7: nothing works");
    assert_eq!(review.spec.reviewers.users, ["erin"]);
}

#[test]
fn unreviewed_emergencies_are_asked_about_last_and_limit_another_one() {
    let mut unknown = declared(0);
    unknown.facts.unreviewed = None;
    let Submitted {
        controller,
        run,
        facts,
    } = &unknown;
    let Verdict::Need { question, .. } = controller.decide(now(), run, facts, &[]) else {
        panic!("no question");
    };
    let Question::Emergencies(limit) = question else {
        panic!("{question:?}");
    };
    assert_eq!((limit.requester.user.as_str(), limit.most), ("ada", 2));

    let (decision, status) = decide(&declared(2), 1);
    assert_eq!(status.phase, Some(RunPhase::Failed));
    let expected = "False TooManyOpenReviews";
    assert_eq!(condition(&status, conditions::EMERGENCY), expected);
    assert_eq!(records(&decision.plan)[0].action, Action::RequestDenied);

    let mut unreadable = declared(0);
    let failure = Failure::transient("NotReady", "no list yet");
    unreadable.facts.unreviewed = Some(Err(failure));
    let (decision, _) = decide(&unreadable, 1);
    assert!(matches!(&decision.state, State::Waiting(why) if why.reason == "NotReady"));
}

#[test]
fn emergency_waits_a_day_for_audit_records_in_the_cluster() {
    const DAY: i64 = 24 * 60 * 60;
    let mut declared = declared(0);
    let failure = Failure::invalid("ReviewsUnavailable", "set audit.objects: true");
    declared.facts.unreviewed = Some(Err(failure));
    let expected = "False ReviewsUnavailable";
    for second in [1, DAY - 1] {
        let (decision, status) = decide(&declared, second);
        assert!(matches!(decision.state, State::Waiting(_)), "{second}");
        assert_eq!(condition(&status, conditions::EMERGENCY), expected);
        assert_eq!(decision.plan.wake, Some(seconds(DAY)));
    }
    let (decision, status) = decide(&declared, DAY);
    assert_eq!(status.phase, Some(RunPhase::Failed));
    assert_eq!(condition(&status, conditions::EMERGENCY), expected);
    let records = records(&decision.plan);
    assert_eq!(records[0].action, Action::RequestDenied);
    assert!(
        records[0].message.starts_with("set audit.objects: true; "),
        "{}",
        records[0].message
    );
}

#[test]
fn emergency_begins_within_a_day_of_its_creation_whatever_it_waits_for() {
    const DAY: i64 = 24 * 60 * 60;
    /// The removal of what an emergency requires.
    type Obstacle = fn(&mut Submitted);
    let obstacles: [(&str, Obstacle); 4] = [
        ("nothing", |_| {}),
        ("a broker", |it| it.facts.broker = None),
        ("its other emergencies", |it| it.facts.unreviewed = None),
        ("other runs", |it| {
            let limits = json!({"grants": {}, "limits": {"concurrentRuns": 1}});
            it.facts.policies = vec![Arc::new(policy("limits", limits))];
            it.facts.older = 1;
        }),
    ];
    for (name, obstacle) in obstacles {
        let mut declared = declared(0);
        obstacle(&mut declared);
        let Submitted {
            controller,
            run,
            facts,
        } = &declared;
        match controller.decide(seconds(DAY - 1), run, facts, &[]) {
            Verdict::Decided(decision) => match decision.state {
                State::Waiting(_) => assert_eq!(decision.plan.wake, Some(seconds(DAY)), "{name}"),
                state => assert!(matches!(state, State::Confinable(..)), "{name}: {state:?}"),
            },
            Verdict::Need { question, .. } => {
                let is_expected = matches!(question, Question::Emergencies(_));
                assert!(is_expected, "{name}: {question:?}");
            }
        }
        for second in [DAY, 3 * DAY] {
            let (decision, status) = decide(&declared, second);
            assert_eq!(status.phase, Some(RunPhase::Failed), "{name}");
            let expected = "False EmergencyTimedOut";
            assert_eq!(
                condition(&status, conditions::EMERGENCY),
                expected,
                "{name}"
            );
            let records = records(&decision.plan);
            assert_eq!(records[0].action, Action::RequestDenied, "{name}");
            let expected =
                "the emergency did not begin within a day of its creation (until 2026-02-01";
            assert!(records[0].message.starts_with(expected), "{:?}", records[0]);
        }
    }
}

#[test]
fn emergency_requires_reason_and_named_requester() {
    let with = |change: fn(&mut Value, &mut Value)| {
        let mut run = json!({"emergency": true, "reason": "INC-7"});
        let mut template = fields();
        change(&mut run, &mut template);
        let mut submitted = submitted(run, &template);
        submitted.facts.unreviewed = Some(Ok(Vec::new()));
        submitted
    };
    type Change = fn(&mut Value, &mut Value);
    let cases: [(Change, &str); 4] = [
        (
            |_, template| template["emergency"] = Value::Null,
            "EmergencyAccessDisabled",
        ),
        (
            |_, template| template["emergency"]["users"] = json!(["bob"]),
            "EmergencyNotAllowed",
        ),
        (|run, _| run["reason"] = Value::Null, "ReasonRequired"),
        // No emergency: the template requires a ticket.
        (|run, _| run["emergency"] = json!(false), "TicketRequired"),
    ];
    for (change, reason) in cases {
        let (decision, status) = decide(&with(change), 1);
        assert_eq!(status.phase, Some(RunPhase::Failed), "{reason}");
        assert_eq!(records(&decision.plan)[0].reason, reason);
    }
    let invalid = with(|_, template| template["emergency"]["maxDuration"] = json!("soon"));
    let (decision, _) = decide(&invalid, 1);
    let State::Waiting(why) = &decision.state else {
        panic!("{:?}", decision.state)
    };
    assert_eq!(why.reason, "EmergencyConfigInvalid");
}

#[test]
fn emergency_keeps_the_deadline_of_its_review_in_later_passes() {
    let submitted = declared(0);
    let facts = submitted.facts.clone();
    let begun = Begun::after_start_of(submitted);
    let known = [begun.policy.clone()];
    let decided = begun
        .controller
        .decide(seconds(5), &begun.run, &facts, &known);
    let Verdict::Decided(decision) = decided else {
        panic!("a question");
    };
    let State::Startable(decided, ..) = &decision.state else {
        panic!("{:?}", decision.state)
    };
    let due = now() + SignedDuration::from_hours(24);
    assert_eq!(decided.emergency.as_ref().unwrap().due_at, due);
}

#[test]
fn emergency_is_announced_once_when_it_begins() {
    let begun = Begun::after_start_of(declared(0));
    let (_, status) = begun.reported(seconds(3), &begun.live_objects(None));
    let expected = "True GrantedWithoutApproval";
    assert_eq!(condition(&status, conditions::EMERGENCY), expected);
    let announced = |before| {
        let told = begun.controller.transitions(&begun.run, before, &status);
        let told = told.into_iter().filter(|one| one.warning);
        told.map(|one| one.reason).collect::<Vec<_>>()
    };
    assert_eq!(announced(None), ["EmergencyGranted"]);
    assert_eq!(announced(Some(&status)), Vec::<&str>::new());
}
