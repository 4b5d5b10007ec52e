//! The change ticket of a binding: its check precedes the binding, and continues as long as the binding. A negative
//! response differs from a missing response.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::{EndReason, Phase, TransientRoleBinding, conditions, example_com};
use serde_json::json;

use super::world::*;
use crate::access::policy::Judgement;
use crate::access::testing::judgements::{TIMEOUT, answer, judgement, require, ticket};
use crate::access::{approval, policy};
use crate::controller::{Plan, Step};
use crate::tickets::{Answer, Ask, CheckTerms, FailurePolicy, Said};
use crate::transient::Kind as _;

const EVERY: i64 = 60;

fn refused() -> Answer {
    Answer::Refused("the server responded 200, and accept is false".into())
}

fn away() -> Answer {
    Answer::Away("no response within 3s".into())
}

/// Returns a judgement that requires these checks.
fn checks(names: &[&str]) -> Judgement {
    let rules = names
        .iter()
        .map(|check| ticket(Some("INC-.*"), Some(check)));
    Judgement {
        tickets: rules.collect(),
        ..judgement()
    }
}

/// Returns bob's binding for an hour with a change ticket, in a cluster with a check for each failure policy.
fn named(name: Option<&str>, judgement: Judgement) -> World<TransientRoleBinding> {
    let mut world = lasting("1h");
    world.object.spec.ticket = name.map(ToOwned::to_owned);
    world.judgement = Some(judgement);
    let terms = |failure_policy| CheckTerms {
        failure_policy,
        interval: SignedDuration::from_secs(EVERY),
        timeout: SignedDuration::from_secs(3),
    };
    world.tickets.checks = Some(Arc::new(BTreeMap::from([
        ("jira".to_owned(), terms(FailurePolicy::Fail)),
        ("lenient".to_owned(), terms(FailurePolicy::Ignore)),
    ])));
    world.stamp();
    world
}

fn by(check: &str) -> World<TransientRoleBinding> {
    named(Some("INC-42"), checks(&[check]))
}

/// Records the response of a server at this second.
fn said<K: InMemory>(world: &mut World<K>, check: &str, second: i64, answer: Answer) {
    let before = world.tickets.said.get(check);
    let since = before.and_then(|said| said.away_since);
    let is_away = matches!(answer, Answer::Away(_));
    let said = Said {
        asked_at: timestamp(second),
        answer,
        away_since: is_away.then(|| since.unwrap_or(timestamp(second))),
    };
    world.tickets.said.insert(check.to_owned(), said);
}

/// Returns the checks that a plan asks.
fn asked(plan: &Plan) -> Vec<String> {
    let asks = plan.steps().filter_map(|step| match step {
        Step::Effect(effect) => Ask::try_from(effect).ok(),
        _ => None,
    });
    asks.map(|ask| ask.check).collect()
}

fn accepted<K: InMemory>(world: &World<K>) -> String {
    world.condition(conditions::TICKET_ACCEPTED)
}

#[test]
fn missing_or_other_ticket_denies_binding() {
    let pattern = Judgement {
        tickets: vec![ticket(Some("INC-[0-9]+"), None)],
        ..judgement()
    };
    for (name, reason) in [
        (None, Some("TicketRequired")),
        (Some("CHG-1"), Some("TicketMismatch")),
        (Some("INC-42"), None),
    ] {
        let mut world = named(name, pattern.clone());
        let status = world.settle(timestamp(1));
        match reason {
            Some(reason) => {
                assert_eq!(status.phase, Phase::Denied, "{name:?}");
                assert_eq!(world.records.last().unwrap().reason, reason);
                assert!(world.live.is_empty());
            }
            None => {
                assert_eq!(status.phase, Phase::Active, "{name:?}");
                let record = world.records.last().unwrap();
                assert_eq!(record.details["ticket"], "INC-42");
            }
        }
    }
}

#[test]
fn ticket_that_no_policy_requires_is_recorded_without_check() {
    let mut world = named(Some("INC-42"), judgement());
    assert!(asked(&world.pass(timestamp(1))).is_empty());
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
    assert_eq!(accepted(&world), "True (Success)");
    let record = world.records.last().unwrap();
    assert_eq!(record.details["ticket"], "INC-42");
    assert!(!record.details.contains_key("ticketChecks"));
}

#[test]
fn binding_waits_for_every_check_and_is_denied_by_one() {
    let both = || named(Some("INC-42"), checks(&["jira", "lenient"]));
    let mut world = both();
    let plan = world.pass(timestamp(1));
    assert_eq!(asked(&plan), ["jira", "lenient"]);
    assert_eq!(plan.wake, Some(timestamp(6)));
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(accepted(&world), "False (TicketCheckPending)");
    said(&mut world, "jira", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Pending);
    said(&mut world, "lenient", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    assert_eq!(accepted(&world), "True (Success)");
    let record = world.records.last().unwrap();
    assert_eq!(record.details["ticketChecks"], "jira, lenient");

    let mut world = both();
    said(&mut world, "jira", 1, Answer::Accepted);
    said(&mut world, "lenient", 1, refused());
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Denied);
    assert_eq!(accepted(&world), "False (TicketRefused)");
    assert_eq!(world.actions(), ["RequestDenied"]);
    assert!(world.live.is_empty());
}

#[test]
fn unavailable_check_delays_binding_or_permits_it_by_its_failure_policy() {
    let mut world = by("jira");
    said(&mut world, "jira", 1, away());
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Pending);
    assert_eq!(accepted(&world), "False (TicketCheckUnavailable)");
    let writes = world.writes;
    assert_eq!(asked(&world.pass(timestamp(6))), ["jira"]);
    assert_eq!(world.writes, writes);

    let mut world = by("lenient");
    said(&mut world, "lenient", 1, away());
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    assert_eq!(accepted(&world), "True (TicketCheckUnavailable)");
    let record = world.records.last().unwrap();
    assert_eq!(record.details["ticketCheckUnavailable"], "lenient");
}

#[test]
fn binding_ends_when_its_ticket_is_closed_and_stays_ended() {
    let mut world = by("jira");
    said(&mut world, "jira", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    let plan = world.pass(timestamp(30));
    assert_eq!((asked(&plan), plan.wake), (vec![], Some(timestamp(61))));
    assert_eq!(asked(&world.pass(timestamp(61))), ["jira"]);
    said(&mut world, "jira", 61, refused());
    // The end begins, and the ticket is opened again before it is complete.
    world.records_fail = true;
    world.pass(timestamp(62));
    assert_eq!(world.status().phase, Phase::Active);
    world.records_fail = false;
    said(&mut world, "jira", 63, Answer::Accepted);
    let status = world.settle(timestamp(64));
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(status.ending.unwrap().reason, EndReason::TicketClosed);
    assert!(world.live.is_empty());
    assert_eq!(accepted(&world), "False (TicketClosed)");
    let record = world.records.last().unwrap();
    assert_eq!(record.reason, "TicketClosed");
    assert_eq!(record.details["ticket"], "INC-42");
}

#[test]
fn unavailable_check_ends_binding_after_the_permitted_time() {
    for (check, phase) in [("jira", Phase::Revoked), ("lenient", Phase::Active)] {
        let mut world = by(check);
        said(&mut world, check, 1, Answer::Accepted);
        world.settle(timestamp(2));
        said(&mut world, check, 61, away());
        let until = timestamp(61 + 5 * EVERY);
        assert_eq!(world.settle(until - NANOSECOND).phase, Phase::Active);
        assert_eq!(world.settle(until).phase, phase, "{check}");
    }
}

#[test]
fn binding_expires_at_its_time_whatever_the_server_says() {
    let mut world = by("jira");
    said(&mut world, "jira", 1, Answer::Accepted);
    let until = world.settle(timestamp(2)).expires_at.unwrap();
    said(&mut world, "jira", 3_590, Answer::Accepted);
    assert_eq!(world.settle(until - NANOSECOND).phase, Phase::Active);
    let status = world.settle(until);
    assert_eq!(status.phase, Phase::Expired);
    assert!(world.live.is_empty());
}

#[test]
fn approvers_are_asked_after_the_ticket_was_accepted() {
    let mut judgement = checks(&["jira"]);
    require(&mut judgement, "carol", TIMEOUT);
    let mut world = named(Some("INC-42"), judgement);
    world.settle(timestamp(1));
    assert!(world.actions().is_empty());
    said(&mut world, "jira", 1, Answer::Accepted);
    let status = world.settle(timestamp(2));
    assert_eq!(status.phase, Phase::Pending);
    assert_eq!(world.actions(), ["ApprovalRequested"]);
    assert_eq!(world.records[0].details["ticket"], "INC-42");
    // The check is not pending any more.
    let ticket = conditions::find(&status.conditions, conditions::TICKET_ACCEPTED);
    assert_eq!(ticket, None);
    let given = {
        let view = world.object.stored().unwrap();
        let rules = policy::rules(world.judgement.as_ref()).unwrap();
        let candidate = view.candidate("oz-system");
        let digest = approval::digest(&candidate, &view.spec_digest, &rules);
        answer(&candidate, digest, "carol", true, 100)
    };
    world.approvals.push(given);
    // The response is too old for the binding by now.
    assert_eq!(asked(&world.pass(timestamp(101))), ["jira"]);
    assert_eq!(world.status().phase, Phase::Pending);
    said(&mut world, "jira", 101, Answer::Accepted);
    assert_eq!(world.settle(timestamp(102)).phase, Phase::Active);
    assert_eq!(world.actions(), ["ApprovalRequested", "AccessGranted"]);
}

#[test]
fn crash_after_the_binding_keeps_its_ticket_and_its_expiry() {
    let mut world = by("jira");
    said(&mut world, "jira", 1, Answer::Accepted);
    world.status_fails = true;
    world.pass(timestamp(2));
    world.status_fails = false;
    let status = world.settle(timestamp(10));
    assert_eq!(status.expires_at, Some(timestamp(2 + 3_600)));
    assert_eq!(accepted(&world), "True (Success)");
    said(&mut world, "jira", 61, refused());
    assert_eq!(world.settle(timestamp(62)).phase, Phase::Revoked);
}

#[test]
fn published_kind_is_denied_and_told_of_the_kind_of_oz() {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
        "metadata": {"name": "on-call", "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alice"}],
        "validFrom": timestamp(0), "validUntil": timestamp(360),
    });
    let mut world = World::<example_com::RoleBinding>::from_object(object);
    world.judgement = Some(checks(&["jira"]));
    world.stamp();
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
    let record = world.records.last().unwrap();
    assert_eq!(record.reason, "CannotNameTicket");
    let message = &record.message;
    let next = "create a TransientRoleBinding of crds.wizardofoz.co";
    assert!(message.contains(next), "{message}");
}

#[test]
fn digest_of_binding_without_ticket_and_emergency_is_that_of_earlier_releases() {
    let world = namespaced(|_| {});
    let spec = serde_json::to_value(&world.object.spec).unwrap();
    let fields: Vec<&String> = spec.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["roleRef", "subjects", "validFrom", "validUntil"]);
}
