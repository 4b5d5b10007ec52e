//! The check of a change ticket precedes the grant, and continues as long as the grant. A negative response differs
//! from a missing response.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::{EmergencyConfig, EndReason, Phase, ReviewConfig, TicketConfig, conditions};

use super::world::*;
use crate::access::policy::{Judgement, TicketRule};
use crate::controller::{Plan, Step};
use crate::tickets::{Answer, Ask, CheckTerms, FailurePolicy, Said, Subject};

const EVERY: i64 = 60;
/// The timeout of a ticket check, in seconds.
const TIMEOUT: i64 = 3;

fn config(pattern: Option<&str>, check: Option<&str>) -> TicketConfig {
    TicketConfig {
        pattern: pattern.map(ToOwned::to_owned),
        check: check.map(ToOwned::to_owned),
    }
}

fn refused() -> Answer {
    Answer::Refused("the server responded 200, and accept is false".into())
}

fn away() -> Answer {
    Answer::Away("no response within 3s".into())
}

/// Returns a request of alice with a change ticket, in a cluster with a check for each failure policy.
fn asking(ticket: Option<&str>, wants: TicketConfig) -> World {
    let mut world = World::new();
    world.request.spec.ticket = ticket.map(ToOwned::to_owned);
    world.config().ticket = Some(wants);
    let terms = |failure_policy| CheckTerms {
        failure_policy,
        interval: SignedDuration::from_secs(EVERY),
        timeout: SignedDuration::from_secs(TIMEOUT),
    };
    world.tickets.checks = Some(Arc::new(BTreeMap::from([
        ("jira".to_owned(), terms(FailurePolicy::Fail)),
        ("lenient".to_owned(), terms(FailurePolicy::Ignore)),
    ])));
    world.stamp("alice", &["devs"]);
    world
}

fn by(check: &str) -> World {
    asking(Some("INC-42"), config(None, Some(check)))
}

impl World {
    /// Records the response of a server at this second.
    fn said(&mut self, check: &str, second: i64, answer: Answer) {
        let before = self.tickets.said.get(check);
        let since = before.and_then(|said| said.away_since);
        let away = matches!(answer, Answer::Away(_));
        let said = Said {
            asked_at: timestamp(second),
            answer,
            away_since: away.then(|| since.unwrap_or(timestamp(second))),
        };
        self.tickets.said.insert(check.to_owned(), said);
    }

    fn ticket_condition(&self) -> (String, String, String) {
        let status = self.status();
        let found = conditions::find(&status.conditions, conditions::TICKET_ACCEPTED).unwrap();
        let found = found.clone();
        (found.status, found.reason, found.message)
    }
}

/// Returns the ticket checks of a plan: the check, the change ticket, and the flag `waits`.
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

#[test]
fn missing_or_invalid_ticket_denies_request_at_once() {
    for (ticket, wants, reason) in [
        (None, config(None, None), Some("TicketRequired")),
        (
            None,
            config(Some("INC-[0-9]+"), None),
            Some("TicketRequired"),
        ),
        (None, config(None, Some("jira")), Some("TicketRequired")),
        (
            Some("INC-4x"),
            config(Some("INC-[0-9]+"), None),
            Some("TicketMismatch"),
        ),
        (
            Some("xINC-4"),
            config(Some("INC-[0-9]+"), Some("jira")),
            Some("TicketMismatch"),
        ),
        (Some("INC-4"), config(Some("INC-[0-9]+"), None), None),
        (Some("anything"), config(None, None), None),
    ] {
        let mut world = asking(ticket, wants.clone());
        let status = world.settle(timestamp(1));
        match reason {
            None => {
                assert_eq!(status.phase, Phase::Active, "{ticket:?} {wants:?}");
                let record = world.records.last().unwrap();
                assert_eq!(record.details["ticket"], ticket.unwrap());
            }
            Some(reason) => {
                assert_eq!(status.phase, Phase::Denied, "{ticket:?} {wants:?}");
                assert_eq!(world.records.last().unwrap().reason, reason);
                assert!(world.live.is_empty());
            }
        }
    }
}

#[test]
fn a_request_waits_until_its_server_has_answered_and_asks_once() {
    let mut world = by("jira");
    let plan = world.pass(timestamp(1));
    assert_eq!(asked(&plan), [("jira".into(), "INC-42".into(), true)]);
    assert_eq!(plan.wake, Some(timestamp(6)));
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(world.ticket_condition().1, "TicketCheckPending");
    assert!(world.live.is_empty());

    world.said("jira", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    let (status, _, message) = world.ticket_condition();
    assert_eq!(
        (status.as_str(), message.as_str()),
        ("True", "Ticket INC-42 is accepted by jira")
    );
    let record = world.records.last().unwrap();
    assert_eq!(record.details["ticketChecks"], "jira");
    assert!(!record.details.contains_key("ticketCheckUnavailable"));
}

#[test]
fn ticket_refusal_denies_despite_leniency_or_unavailable_check() {
    for check in ["jira", "lenient"] {
        let mut world = by(check);
        world.said(check, 1, refused());
        assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied, "{check}");
        assert_eq!(world.ticket_condition().1, "TicketRefused");
        assert_eq!(world.records.last().unwrap().reason, "TicketRefused");
        assert!(world.live.is_empty());
    }
    let mut both = judged(&["lenient"]);
    both.said("jira", 1, away());
    both.said("lenient", 1, refused());
    assert_eq!(both.settle(timestamp(1)).phase, Phase::Denied);
}

#[test]
fn an_answer_from_before_the_request_or_from_long_ago_is_none() {
    let mut world = by("jira");
    for answer in [Answer::Accepted, refused()] {
        world.tickets.said.clear();
        world.said("jira", -1, answer);
        assert_eq!(asked(&world.pass(timestamp(1))).len(), 1);
        assert_eq!(world.status().phase, Phase::Pending);
    }
    // The validity of a response, to the nanosecond.
    world.said("jira", 1, Answer::Accepted);
    let old = world.plan(timestamp(1 + EVERY + TIMEOUT));
    assert_eq!(asked(&old).len(), 1);
    assert!(old.steps().all(|step| matches!(step, Step::Effect(_))));
    let last = world.plan(timestamp(1 + EVERY + TIMEOUT) - NANOSECOND);
    assert!(last.steps().any(|step| matches!(step, Step::Apply(_))));
}

#[test]
fn an_answer_that_took_longer_than_the_interval_is_one() {
    let mut world = by("jira");
    let mut checks = BTreeMap::clone(world.tickets.checks.as_ref().unwrap());
    for terms in checks.values_mut() {
        terms.interval = SignedDuration::from_secs(1);
        terms.timeout = SignedDuration::from_secs(10);
    }
    world.tickets.checks = Some(Arc::new(checks));
    world.pass(timestamp(1));
    world.said("jira", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(11)).phase, Phase::Active);
}

#[test]
fn an_outage_holds_up_or_lets_pass_as_the_check_says() {
    let mut waits = by("jira");
    waits.said("jira", 1, away());
    let plan = waits.pass(timestamp(2));
    assert_eq!(asked(&plan), []);
    assert_eq!(waits.status().phase, Phase::Pending);
    let (_, reason, message) = waits.ticket_condition();
    assert_eq!(reason, "TicketCheckUnavailable");
    assert!(message.contains("no response within 3s"), "{message}");
    // The server is asked again after a short pause.
    assert_eq!(asked(&waits.plan(timestamp(6) - NANOSECOND)), []);
    assert_eq!(asked(&waits.plan(timestamp(6))).len(), 1);
    // The request does not wait longer than its duration in any outage.
    waits.said("jira", 299, away());
    assert_eq!(waits.settle(timestamp(300)).phase, Phase::Expired);

    let mut passes = by("lenient");
    assert_eq!(asked(&passes.pass(timestamp(1))).len(), 1);
    assert_eq!(passes.status().phase, Phase::Pending);
    passes.said("lenient", 1, away());
    assert_eq!(passes.settle(timestamp(2)).phase, Phase::Active);
    assert_eq!(passes.ticket_condition().1, "TicketCheckUnavailable");
    assert_eq!(
        passes.records.last().unwrap().details["ticketCheckUnavailable"],
        "lenient"
    );
}

#[test]
fn unknown_ticket_check_does_not_permit_request() {
    let mut world = by("unknown");
    let plan = world.pass(timestamp(1));
    assert_eq!(asked(&plan), []);
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(world.ticket_condition().1, "TicketCheckUnknown");
    assert!(
        world
            .ticket_condition()
            .2
            .contains("tickets.checks.unknown")
    );
}

/// Returns a grant with a change ticket that was accepted in the first second.
fn granted(check: &str) -> World {
    let mut world = by(check);
    world.said(check, 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
    world
}

#[test]
fn a_grant_asks_again_at_each_interval_and_ends_when_its_ticket_is_closed() {
    for check in ["jira", "lenient"] {
        let mut world = granted(check);
        let early = world.plan(timestamp(1 + EVERY) - NANOSECOND);
        assert_eq!(
            (asked(&early), early.wake),
            (vec![], Some(timestamp(1 + EVERY)))
        );
        let due = world.plan(timestamp(1 + EVERY));
        assert_eq!(asked(&due), [(check.into(), "INC-42".into(), false)]);
        assert_eq!(due.wake, Some(timestamp(1 + 2 * EVERY)));
        world.said(check, 61, Answer::Accepted);
        assert_eq!(world.settle(timestamp(62)).phase, Phase::Active);

        world.said(check, 121, refused());
        let status = world.settle(timestamp(122));
        assert_eq!(status.phase, Phase::Revoked, "{check}");
        assert_eq!(status.ending.unwrap().reason, EndReason::TicketClosed);
        assert!(world.live.is_empty());
        assert_eq!(world.ended.len(), 1);
        let record = world.records.last().unwrap();
        assert_eq!(record.reason, "TicketClosed");
        assert_eq!(record.details["ticket"], "INC-42");
        let (status, reason, _) = world.ticket_condition();
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("False", "TicketClosed")
        );
        // A reopened change ticket does not restore the grant.
        world.said(check, 181, Answer::Accepted);
        assert_eq!(world.settle(timestamp(182)).phase, Phase::Revoked);
    }
}

#[test]
fn an_outage_never_extends_a_grant_and_ends_it_only_where_it_may_and_lasts() {
    let mut strict = granted("jira");
    strict.said("jira", 61, away());
    let gives_up = timestamp(61 + 5 * EVERY);
    // The window ends earlier: the grant expires as if there were no check.
    assert_eq!(strict.settle(timestamp(300)).phase, Phase::Expired);

    let long = |check| {
        let mut world = by(check);
        world.request.spec.duration = Some("1h".into());
        world.stamp("alice", &["devs"]);
        world.said(check, 1, Answer::Accepted);
        world.settle(timestamp(1));
        world.said(check, 61, away());
        world.said(check, 121, away());
        world
    };
    let mut strict = long("jira");
    assert_eq!(strict.settle(gives_up - NANOSECOND).phase, Phase::Active);
    assert!(strict.plan(gives_up - NANOSECOND).wake <= Some(gives_up));
    let mut back = strict.clone();
    back.said("jira", 200, Answer::Accepted);
    assert_eq!(back.settle(gives_up).phase, Phase::Active);
    let status = strict.settle(gives_up);
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(
        status.ending.unwrap().reason,
        EndReason::TicketCheckUnavailable
    );

    let mut lenient = long("lenient");
    assert_eq!(lenient.settle(timestamp(3_599)).phase, Phase::Active);
    assert_eq!(lenient.settle(timestamp(3_600)).phase, Phase::Expired);
}

/// Returns a request with a judgement that requires these checks in addition to the template's check.
fn judged(checks: &[&str]) -> World {
    let mut world = by("jira");
    let rule = |check: &&str| TicketRule {
        policy: format!("by-{check}"),
        ticket: config(Some("INC-.*"), Some(check)),
    };
    world.judgement = Some(Judgement {
        tickets: checks.iter().map(rule).collect(),
        ..Judgement::default()
    });
    world.stamp("alice", &["devs"]);
    world
}

#[test]
fn ticket_rules_of_access_policies_add_to_those_of_template() {
    let mut world = judged(&["lenient", "jira"]);
    let names: Vec<String> = asked(&world.pass(timestamp(1)))
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(names, ["jira", "lenient"]);
    world.said("jira", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Pending);
    world.said("lenient", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);

    let mut other = judged(&["lenient"]);
    other.request.spec.ticket = Some("CHG-1".into());
    other.stamp("alice", &["devs"]);
    assert_eq!(other.settle(timestamp(1)).phase, Phase::Denied);
    let message = &other.records.last().unwrap().message;
    assert!(
        message.contains("AccessPolicy by-lenient requires a ticket"),
        "{message}"
    );
}

#[test]
fn approvers_are_not_asked_about_rejected_ticket() {
    let mut world = by("jira");
    world.config().approval = Some(approval(&["bob"], None));
    world.said("jira", 1, refused());
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
    assert_eq!(world.actions(), ["RequestDenied"]);

    let mut world = by("jira");
    world.config().approval = Some(approval(&["bob"], None));
    world.pass(timestamp(1));
    assert_eq!(world.actions(), [""; 0]);
    world.said("jira", 1, Answer::Accepted);
    world.settle(timestamp(2));
    assert_eq!(world.actions(), ["ApprovalRequested"]);
}

#[test]
fn emergency_requires_no_ticket_and_asks_no_check() {
    for ticket in [None, Some("CHG-1")] {
        let mut world = asking(ticket, config(Some("INC-.*"), Some("jira")));
        world.config().emergency = Some(EmergencyConfig {
            groups: vec!["devs".into()],
            users: Vec::new(),
            max_duration: "1h".into(),
            review: ReviewConfig {
                deadline: "24h".into(),
                groups: vec!["leads".into()],
                users: Vec::new(),
            },
            open_reviews: 2,
        });
        world.request.spec.emergency = Some(true);
        world.request.spec.reason = Some("it burns".into());
        world.stamp("alice", &["devs"]);
        let plan = world.pass(timestamp(1));
        assert_eq!(asked(&plan), []);
        assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
        world.said("jira", 2, refused());
        assert_eq!(world.settle(timestamp(3)).phase, Phase::Active);
    }
}
