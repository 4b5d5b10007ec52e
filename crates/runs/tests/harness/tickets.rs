//! The change ticket of a run: it is required before the run begins, checked by servers, and ends the run when it is
//! closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::conditions;
use oz_api::harness::{HarnessRunStatus, HarnessTemplate, RunPhase};
use oz_core::controller::{Controller as _, Decision, Failure, Live, Outcome, Plan, Step, Verdict};
use oz_core::tickets::{Answer, Ask, CheckTerms, FailurePolicy, Said, Subject, Tickets};
use oz_runs::admission;
use oz_runs::queue::has_place;
use oz_runs::run::{Facts, State};
use oz_runs::template::resolve;
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::runs::{Begun, Submitted};
use crate::{inheriting, now, template};

/// The interval of the ticket checks, in seconds.
const EVERY: i64 = 60;

pub(crate) fn seconds(count: i64) -> Timestamp {
    now() + SignedDuration::from_secs(count)
}

/// A run with these fields, of a template with these, in a cluster with a ticket check for each failure policy.
pub(crate) fn submitted(run: Value, fields: &Value) -> Submitted {
    let mut submitted = Submitted::new(run);
    let mut spec = json!({"workspace": {"required": false}});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let template = HarnessTemplate::new("parrot", template(spec));
    submitted.facts.template = Some(Arc::new(template));
    submitted.facts.tickets = checks();
    submitted
}

pub(crate) fn checks() -> Tickets {
    let terms = |failure_policy| CheckTerms {
        failure_policy,
        interval: SignedDuration::from_secs(EVERY),
        timeout: SignedDuration::from_secs(3),
    };
    let checks = BTreeMap::from([
        ("jira".to_owned(), terms(FailurePolicy::Fail)),
        ("lenient".to_owned(), terms(FailurePolicy::Ignore)),
    ]);
    Tickets {
        checks: Some(Arc::new(checks)),
        ..Tickets::default()
    }
}

/// A run with a change ticket that this check must accept.
fn checked(check: &str) -> Submitted {
    let run = json!({"ticket": "INC-42"});
    submitted(run, &json!({"ticket": {"check": check}}))
}

/// Adds the response of a server at this second.
pub(crate) fn said(tickets: &mut Tickets, check: &str, second: i64, answer: Answer) {
    let before = tickets.said.get(check).and_then(|said| said.away_since);
    let is_away = matches!(answer, Answer::Away(_));
    let said = Said {
        asked_at: seconds(second),
        away_since: is_away.then(|| before.unwrap_or(seconds(second))),
        answer,
    };
    tickets.said.insert(check.to_owned(), said);
}

fn refused() -> Answer {
    Answer::Refused("the ticket is closed".to_owned())
}

fn away() -> Answer {
    Answer::Away("no response within 3s".to_owned())
}

/// Decides about a run without objects, and returns the status after all steps succeeded.
pub(crate) fn decide(submitted: &Submitted, second: i64) -> (Decision<State>, HarnessRunStatus) {
    let Submitted {
        controller,
        run,
        facts,
    } = submitted;
    let Verdict::Decided(decision) = controller.decide(seconds(second), run, facts, &[]) else {
        panic!("a question");
    };
    let outcome = Outcome {
        failure: decision.plan.obstacle.clone(),
        ..Outcome::default()
    };
    let status = controller.status(seconds(second), run, &decision, &outcome);
    (decision, status)
}

pub(crate) fn condition(status: &HarnessRunStatus, type_: &str) -> String {
    let found = conditions::find(&status.conditions, type_);
    found.map_or_else(String::new, |it| format!("{} {}", it.status, it.reason))
}

fn accepted(status: &HarnessRunStatus) -> String {
    condition(status, conditions::TICKET_ACCEPTED)
}

/// Returns the queries of a plan: the check, the change ticket, and whether the run waits for the response.
fn asked(plan: &Plan) -> Vec<(String, String, bool)> {
    let asks = plan.steps().filter_map(|step| match step {
        Step::Effect(effect) => Ask::try_from(effect).ok(),
        _ => None,
    });
    asks.map(|ask| match ask.subject {
        Subject::Ticket(ticket) => (ask.check, ticket, ask.waits),
        Subject::Requester(person) => panic!("{person:?}"),
    })
    .collect()
}

pub(crate) fn records(plan: &Plan) -> Vec<Record> {
    let records = plan.steps().filter_map(|step| match step {
        Step::Record(record) => Some(record.clone()),
        _ => None,
    });
    records.collect()
}

#[test]
fn ticket_of_run_is_required_and_compared_with_every_pattern() {
    for (ticket, config, reason) in [
        (None, json!({}), Some("TicketRequired")),
        (None, json!({"check": "jira"}), Some("TicketRequired")),
        (
            Some("CHG-1"),
            json!({"pattern": "INC-.*"}),
            Some("TicketMismatch"),
        ),
        (Some("INC-1"), json!({"pattern": "INC-.*"}), None),
        (Some("anything"), json!({}), None),
        (Some("unneeded"), Value::Null, None),
        (None, Value::Null, None),
    ] {
        let submitted = submitted(json!({"ticket": ticket}), &json!({"ticket": config}));
        let (decision, status) = decide(&submitted, 1);
        match reason {
            Some(reason) => {
                assert_eq!(status.phase, Some(RunPhase::Failed), "{ticket:?} {config}");
                let records = records(&decision.plan);
                assert_eq!(records[0].action, Action::RequestDenied);
                assert_eq!(records[0].reason, reason, "{ticket:?} {config}");
            }
            None => {
                let State::Confinable(decided, _) = decision.state else {
                    panic!("{:?}", decision.state)
                };
                let sealed = decided.ticket.map(|ticket| ticket.name);
                assert_eq!(sealed.as_deref(), ticket);
            }
        }
    }
}

#[test]
fn response_about_ticket_decides_whether_run_begins() {
    for (check, response, waits, expected) in [
        (
            "jira",
            None,
            Some("TicketCheckPending"),
            "False TicketCheckPending",
        ),
        // The question is older than the run.
        (
            "jira",
            Some((-1, Answer::Accepted)),
            Some("TicketCheckPending"),
            "False TicketCheckPending",
        ),
        (
            "jira",
            Some((0, away())),
            Some("TicketCheckUnavailable"),
            "False TicketCheckUnavailable",
        ),
        (
            "none",
            None,
            Some("TicketCheckUnknown"),
            "False TicketCheckUnknown",
        ),
        ("jira", Some((0, refused())), None, "False TicketRefused"),
        ("jira", Some((0, Answer::Accepted)), None, ""),
        ("lenient", Some((0, away())), None, ""),
    ] {
        let mut submitted = checked(check);
        if let Some((second, answer)) = response.clone() {
            said(&mut submitted.facts.tickets, check, second, answer);
        }
        let (decision, status) = decide(&submitted, 1);
        assert_eq!(accepted(&status), expected, "{check} {response:?}");
        let reason = match &decision.state {
            State::Waiting(failure) => Some(failure.reason),
            _ => None,
        };
        assert_eq!(reason, waits, "{check} {response:?}");
        let is_refused = matches!(&response, Some((_, Answer::Refused(_))));
        let begins = matches!(&decision.state, State::Confinable(..));
        assert_eq!(
            begins,
            waits.is_none() && !is_refused,
            "{check} {response:?}"
        );
        if is_refused {
            assert_eq!(status.phase, Some(RunPhase::Failed));
            let records = records(&decision.plan);
            assert_eq!(records[0].reason, "TicketRefused");
            assert_eq!(records[0].details["ticket"], "INC-42");
        }
    }
}

#[test]
fn server_is_asked_while_run_waits_and_again_after_missing_response() {
    let mut submitted = checked("jira");
    let question = vec![("jira".to_owned(), "INC-42".to_owned(), true)];
    let (decision, _) = decide(&submitted, 1);
    assert_eq!(asked(&decision.plan), question);
    assert_eq!(decision.plan.wake, Some(seconds(6)));
    said(&mut submitted.facts.tickets, "jira", 2, away());
    let (decision, _) = decide(&submitted, 6);
    assert_eq!(asked(&decision.plan), []);
    let (decision, _) = decide(&submitted, 7);
    assert_eq!(asked(&decision.plan), question);
}

#[test]
fn run_stops_waiting_for_its_ticket_after_a_day_or_with_its_approvals() {
    const DAY: i64 = 24 * 60 * 60;
    let rules = json!([{"name": "security", "users": ["bob"]}]);
    let approval = json!({"rules": rules, "timeout": "10m"});
    for (check, approval, until, reason) in [
        ("jira", Value::Null, DAY, "TicketCheckUnavailable"),
        ("none", Value::Null, DAY, "TicketCheckUnknown"),
        ("jira", approval, 600, "TicketCheckUnavailable"),
    ] {
        let fields = json!({"ticket": {"check": check}, "approval": approval});
        let mut submitted = submitted(json!({"ticket": "INC-42"}), &fields);
        said(&mut submitted.facts.tickets, "jira", until - 2, away());
        let (decision, status) = decide(&submitted, until - 1);
        assert_eq!(accepted(&status), format!("False {reason}"));
        assert!(matches!(decision.state, State::Waiting(_)), "{check}");
        let wake = decision.plan.wake;
        assert!(wake.is_some_and(|at| at <= seconds(until)), "{wake:?}");

        let (decision, status) = decide(&submitted, until);
        assert_eq!(status.phase, Some(RunPhase::Failed), "{check} {until}");
        assert_eq!(asked(&decision.plan), []);
        let records = records(&decision.plan);
        assert_eq!(records[0].action, Action::RequestDenied);
        assert_eq!(records[0].reason, reason);
    }
}

#[test]
fn run_beyond_share_of_its_user_reports_that_in_condition_of_ticket() {
    let submitted = checked("jira");
    let (decision, _) = decide(&submitted, 1);
    let failure = Failure::transient("TooManyTickets", "1000 are being checked for user ada");
    let outcome = Outcome {
        failure: Some(failure),
        ..Outcome::default()
    };
    let status = submitted
        .controller
        .status(seconds(1), &submitted.run, &decision, &outcome);
    assert_eq!(status.phase, Some(RunPhase::Pending));
    assert_eq!(accepted(&status), "False TooManyTickets");
}

#[test]
fn query_counts_for_user_of_run_before_and_after_its_start() {
    let users = |plan: &Plan| -> Vec<String> {
        let asks = plan.steps().filter_map(|step| match step {
            Step::Effect(effect) => Ask::try_from(effect).ok(),
            _ => None,
        });
        asks.map(|ask| ask.user).collect()
    };
    let (decision, _) = decide(&checked("jira"), 1);
    assert_eq!(users(&decision.plan), ["ada"]);
    let (begun, tickets) = begun("jira");
    let (decision, _) = begun.decided_by(60, &tickets, &begun.live_objects(None));
    assert_eq!(users(&decision.plan), ["ada"]);
}

#[test]
fn refused_ticket_denies_run_before_its_approvers_are_asked() {
    let rules = json!([{"name": "security", "users": ["bob"]}]);
    let fields =
        json!({"ticket": {"check": "jira"}, "approval": {"rules": rules, "timeout": "10m"}});
    for (answer, expected) in [
        (refused(), Action::RequestDenied),
        (Answer::Accepted, Action::ApprovalRequested),
    ] {
        let mut submitted = submitted(json!({"ticket": "INC-42"}), &fields);
        said(&mut submitted.facts.tickets, "jira", 0, answer);
        let (decision, _) = decide(&submitted, 1);
        let records = records(&decision.plan);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].action, expected);
        assert_eq!(records[0].details["ticket"], "INC-42");
    }
}

/// A run that began with a change ticket that this check accepted.
fn begun(check: &str) -> (Begun, Tickets) {
    let mut submitted = checked(check);
    said(&mut submitted.facts.tickets, check, 0, Answer::Accepted);
    let tickets = submitted.facts.tickets.clone();
    (Begun::after_start_of(submitted), tickets)
}

impl Begun {
    /// Decides about a run that has begun, by these responses, and returns the status after all steps succeeded.
    fn decided_by(
        &self,
        second: i64,
        tickets: &Tickets,
        known: &[Live],
    ) -> (Decision<State>, HarnessRunStatus) {
        let facts = Facts {
            tickets: tickets.clone(),
            job_made: true,
            ..Facts::default()
        };
        let decided = self
            .controller
            .decide(seconds(second), &self.run, &facts, known);
        let Verdict::Decided(decision) = decided else {
            panic!("a question");
        };
        let outcome = Outcome {
            live: known.to_vec(),
            ..Outcome::default()
        };
        let status = self
            .controller
            .status(seconds(second), &self.run, &decision, &outcome);
        (decision, status)
    }
}

/// Otherwise the end of the holder, which queries the check of each run that waits, would pass over these runs.
#[test]
fn run_keeps_its_place_on_named_workspace_during_query_of_ticket_check() {
    let run = json!({"ticket": "INC-42", "workspaceRef": "cage"});
    let mut submitted = submitted(run, &json!({"ticket": {"check": "jira"}}));
    let held = json!({
        "metadata": {"name": "cage", "namespace": "birds", "uid": "u-2"},
        "spec": {"storage": {"size": "1Gi"}},
        "status": {"phase": "Active", "activeRunRef": "other", "activeRunUID": "u-3"},
    });
    submitted.facts.workspace = Some(Arc::new(serde_json::from_value(held).unwrap()));
    for (second, answer, pending, has) in [
        // The rules after the query, such as that about approvals, have not been applied to a new run.
        (1, None, true, false),
        (10, Some(Answer::Accepted), false, true),
        (10 + 2 * EVERY, None, true, true),
        (11 + 2 * EVERY, Some(Answer::Accepted), false, true),
        (12 + 2 * EVERY, Some(away()), false, false),
        (13 + 2 * EVERY, Some(Answer::Accepted), false, true),
    ] {
        if let Some(answer) = answer {
            said(&mut submitted.facts.tickets, "jira", second, answer);
        }
        let (_, status) = decide(&submitted, second);
        let is_pending = accepted(&status) == "False TicketCheckPending";
        submitted.run.status = Some(status);
        assert_eq!(is_pending, pending, "{second}");
        assert_eq!(has_place(&submitted.run), has, "{second}");
    }
}

#[test]
fn server_is_asked_in_each_interval_while_run_lasts() {
    let (begun, tickets) = begun("jira");
    let known = begun.live_objects(None);
    let (decision, status) = begun.decided_by(59, &tickets, &known);
    assert_eq!(accepted(&status), "True Success");
    assert_eq!(asked(&decision.plan), []);
    assert!(decision.plan.wake.is_some_and(|at| at <= seconds(60)));
    let (decision, _) = begun.decided_by(60, &tickets, &known);
    let question = ("jira".to_owned(), "INC-42".to_owned(), false);
    assert_eq!(asked(&decision.plan), [question]);
}

#[test]
fn closed_ticket_and_long_outage_end_run_that_has_begun() {
    for (check, answer, second, reason) in [
        ("jira", Answer::Accepted, 59, None),
        ("jira", refused(), 30, Some("TicketClosed")),
        ("lenient", refused(), 30, Some("TicketClosed")),
        ("jira", away(), 30 + 5 * EVERY - 1, None),
        (
            "jira",
            away(),
            30 + 5 * EVERY,
            Some("TicketCheckUnavailable"),
        ),
        ("lenient", away(), 30 + 500 * EVERY, None),
    ] {
        let (begun, mut tickets) = begun(check);
        said(&mut tickets, check, 30, answer.clone());
        let (decision, _) = begun.decided_by(second, &tickets, &begun.live_objects(None));
        let ended = match &decision.state {
            State::Ending(end, _) => {
                assert_eq!(end.phase, RunPhase::Cancelled);
                Some(end.reason.as_str())
            }
            State::Begun(..) => None,
            state => panic!("{state:?}"),
        };
        assert_eq!(ended, reason, "{check} {answer:?} {second}");
    }
}

#[test]
fn run_that_ends_by_its_ticket_keeps_that_end_until_it_is_recorded() {
    let (mut begun, mut tickets) = begun("jira");
    said(&mut tickets, "jira", 30, refused());
    let (_, status) = begun.decided_by(31, &tickets, &begun.live_objects(None));
    assert_eq!(accepted(&status), "False TicketClosed");
    assert_eq!(condition(&status, "Completed"), "False TicketClosed");
    begun.run.status = Some(status);
    // Another answer does not bring the run back.
    said(&mut tickets, "jira", 90, Answer::Accepted);
    let (decision, status) = begun.decided_by(91, &tickets, &[begun.policy.clone()]);
    assert_eq!(status.phase, Some(RunPhase::Cancelled));
    assert_eq!(accepted(&status), "False TicketClosed");
    let records = records(&decision.plan);
    assert_eq!(records[0].action, Action::RunEnded);
    assert_eq!(records[0].reason, "TicketClosed");
    assert_eq!(records[0].details["ticket"], "INC-42");
}

#[test]
fn record_of_start_names_checks_and_those_without_response() {
    let mut submitted = checked("lenient");
    said(&mut submitted.facts.tickets, "lenient", 0, away());
    let (decision, _) = decide(&submitted, 1);
    let records = records(&decision.plan);
    assert_eq!(records[0].action, Action::RunStarted);
    for (detail, value) in [
        ("ticket", "INC-42"),
        ("ticketChecks", "lenient"),
        ("ticketCheckUnavailable", "lenient"),
    ] {
        assert_eq!(records[0].details[detail], value);
    }
}

#[test]
fn requirements_of_template_and_base_are_added_and_emergency_is_that_of_base() {
    let emergency = json!({"users": ["ada"], "review": {"users": ["erin"]}});
    let own = inheriting(json!({"ticket": {"pattern": "INC-.*"}, "emergency": emergency}));
    let base = template(json!({"ticket": {"check": "jira"}}));
    let resolved = resolve(&own, Some(&base)).unwrap();
    assert_eq!(resolved.tickets.len(), 2);
    assert_eq!(resolved.emergency, None);
    let base = template(json!({"ticket": {"pattern": "INC-.*"}, "emergency": emergency}));
    let resolved = resolve(&own, Some(&base)).unwrap();
    assert_eq!(resolved.tickets.len(), 1);
    assert_eq!(resolved.emergency, base.emergency);
}

#[test]
fn ticket_and_emergency_are_validated_as_those_of_access_requests() {
    use oz_api::harness::TemplateKind;
    let fields = |found: Vec<oz_core::validate::Violation>| {
        let fields = found.into_iter().map(|one| one.field);
        fields.collect::<Vec<_>>()
    };
    for (run, expected) in [
        (json!({"ticket": "INC-42"}), None),
        (json!({"ticket": "INC 42"}), Some("spec.ticket")),
        (json!({"ticket": "../secret"}), Some("spec.ticket")),
        (json!({"emergency": true, "reason": "pager"}), None),
        (
            json!({"emergency": true, "reason": " "}),
            Some("spec.reason"),
        ),
        (json!({"reason": " "}), None),
    ] {
        let found = fields(admission::run(&crate::world::run(run.clone())));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{run}");
    }
    let review = json!({"users": ["erin"]});
    for (spec, expected) in [
        (json!({"ticket": {"pattern": "INC-[0-9]+"}}), None),
        (
            json!({"ticket": {"pattern": "("}}),
            Some("spec.ticket.pattern"),
        ),
        (
            json!({"emergency": {"users": ["ada"], "review": review}}),
            None,
        ),
        (
            json!({"emergency": {"review": review}}),
            Some("spec.emergency"),
        ),
        (
            json!({"emergency": {"users": ["erin"], "review": review}}),
            Some("spec.emergency.review.users"),
        ),
    ] {
        let kind = TemplateKind::HarnessTemplate;
        let found = fields(admission::template(kind, &template(spec.clone())));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{spec}");
    }
    let emergency = json!({"emergency": {"users": ["ada"], "review": review}});
    let inherits = inheriting(emergency);
    let found = fields(admission::template(
        TemplateKind::HarnessTemplate,
        &inherits,
    ));
    assert_eq!(found, ["spec.emergency"]);
}

/// Digests of specs are part of stamps, and sealed decisions of earlier releases have none of the fields.
#[test]
fn run_and_decision_without_ticket_and_emergency_have_no_such_field() {
    let submitted = Submitted::new(json!({}));
    let (decision, _) = decide(&submitted, 1);
    let State::Confinable(decided, _) = decision.state else {
        panic!("{:?}", decision.state)
    };
    let template = submitted.facts.template.as_ref().unwrap();
    for value in [
        serde_json::to_value(&submitted.run.spec).unwrap(),
        serde_json::to_value(&template.spec).unwrap(),
        serde_json::to_value(&*decided).unwrap(),
    ] {
        for field in ["ticket", "emergency"] {
            assert_eq!(value.get(field), None, "{value}");
        }
    }
}
