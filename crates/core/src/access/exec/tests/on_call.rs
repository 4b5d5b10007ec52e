//! An on-call check that accepts the requester replaces the approvals that name it, before the grant and until the
//! shift ends. Every other response replaces nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::{
    AccessRequestApproval, ApprovalConfig, ApprovalRule, EndReason, Escalation, OnCallCheck, Phase,
    conditions,
};
use oz_trail::Action;

use super::world::*;
use crate::access::approval;
use crate::access::grant::Grant;
use crate::access::policy::{self, Extra, Judgement, Rule};
use crate::access::testing::judgements;
use crate::controller::{Plan, Step};
use crate::kinds::{AccessRequest as _, Kind as _};
use crate::tickets::{Answer, Ask, CheckTerms, FailurePolicy, Person, Said, Subject};

const EVERY: i64 = 60;
/// The timeout of an on-call check, in seconds.
const TIMEOUT: i64 = 3;

fn checks(names: &[&str]) -> Vec<OnCallCheck> {
    let check = |name: &&str| OnCallCheck {
        check: (*name).to_owned(),
        group: None,
    };
    names.iter().map(check).collect()
}

fn off_call() -> Answer {
    Answer::Refused("the server responded 200, and accept is false".into())
}

fn away() -> Answer {
    Answer::Away("no response within 3s".into())
}

/// Returns alice's request, which bob must approve unless one of these checks accepts her, in a cluster with a check for
/// each failure policy.
fn unless(names: &[&str]) -> World {
    let mut world = World::new();
    world.config().approval = Some(ApprovalConfig {
        unless: checks(names),
        ..approval(&["bob"], None)
    });
    let terms = |failure_policy| CheckTerms {
        failure_policy,
        interval: SignedDuration::from_secs(EVERY),
        timeout: SignedDuration::from_secs(TIMEOUT),
    };
    world.tickets.checks = Some(Arc::new(BTreeMap::from([
        ("duty".to_owned(), terms(FailurePolicy::Fail)),
        ("lenient".to_owned(), terms(FailurePolicy::Ignore)),
    ])));
    world.stamp("alice", &["devs"]);
    world
}

fn alice() -> Person {
    Person {
        user: "alice".into(),
        groups: vec!["devs".into()],
        ..Person::default()
    }
}

impl World {
    /// Records the response of a server about a person at this second.
    fn on_call_said(&mut self, person: Person, check: &str, second: i64, answer: Answer) {
        let of_person = self.tickets.on_call.entry(person).or_default();
        let since = of_person.get(check).and_then(|said| said.away_since);
        let away = matches!(answer, Answer::Away(_));
        let said = Said {
            asked_at: timestamp(second),
            answer,
            away_since: away.then(|| since.unwrap_or(timestamp(second))),
        };
        of_person.insert(check.to_owned(), said);
    }

    /// Returns status, reason and message of the condition `Approved`.
    fn approved_condition(&self) -> (String, String, String) {
        let status = self.status();
        let found = conditions::find(&status.conditions, conditions::APPROVED).unwrap();
        let found = found.clone();
        (found.status, found.reason, found.message)
    }
}

/// Returns the queries of a plan: the check, the user, the group, and the flag `waits`.
fn queries(plan: &Plan) -> Vec<(String, String, Option<String>, bool)> {
    let asks = plan.steps().filter_map(|step| match step {
        Step::Effect(effect) => Ask::try_from(effect).ok(),
        _ => None,
    });
    asks.map(|ask| match ask.subject {
        Subject::Requester(person) => (ask.check, person.user, person.group, ask.waits),
        Subject::Ticket(ticket) => panic!("{ticket}"),
    })
    .collect()
}

fn answer(world: &World, user: &str, approval: bool, second: i64) -> AccessRequestApproval {
    let template = world.template.as_ref().unwrap();
    let config = policy::approval(world.judgement.as_ref(), template).unwrap();
    let request = world.request.stored().unwrap();
    let candidate = request.candidate();
    let digest = approval::digest(&candidate, &template.spec_digest(), &config);
    judgements::answer(&candidate, digest, user, approval, second)
}

fn grant(world: &World) -> Grant {
    Grant::open_any(&keys(), &world.live[0].object.metadata).unwrap()
}

#[test]
fn requester_who_is_on_call_is_granted_without_approval() {
    let mut world = unless(&["duty"]);
    let plan = world.pass(timestamp(1));
    assert_eq!(
        queries(&plan),
        [("duty".into(), "alice".into(), None, true)]
    );
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(world.approved_condition().1, "OnCallCheckPending");
    // No approver is asked before the check has responded.
    assert_eq!(world.actions(), [""; 0]);
    assert_eq!(world.status().approval, None);

    world.on_call_said(alice(), "duty", 1, Answer::Accepted);
    let status = world.settle(timestamp(2));
    assert_eq!(status.phase, Phase::Active);
    // As for an approved request, the duration counts from the grant.
    assert_eq!(status.expires_at, Some(timestamp(2 + 300)));
    let (status, reason, message) = world.approved_condition();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "OnCall"));
    assert_eq!(
        message,
        "approval by security is replaced: the requester is on call by duty"
    );
    assert_eq!(world.actions(), ["AccessGranted"]);
    let record = world.records.last().unwrap();
    assert_eq!(record.details["onCallChecks"], "duty");
    assert_eq!(record.details["approvalReplaced"], "security");
    assert!(!record.details.contains_key("approvedBy"));
    assert_eq!(grant(&world).on_call.unwrap().checks, checks(&["duty"]));
}

/// A check, the user of its response, when it was asked, its answer, the time now, and what the condition says.
type Other = (&'static str, Person, i64, Answer, i64, &'static str);

fn other_responses() -> [Other; 9] {
    let bob = Person {
        user: "bob".into(),
        ..alice()
    };
    let other_groups = Person {
        groups: vec!["devs".into(), "sre".into()],
        ..alice()
    };
    let of_group = Person {
        group: Some("devs".into()),
        ..alice()
    };
    [
        (
            "duty",
            alice(),
            1,
            off_call(),
            2,
            "alice is not on call by on-call check duty",
        ),
        (
            "duty",
            alice(),
            1,
            away(),
            2,
            "on-call check duty does not respond",
        ),
        // The failure policy has no effect before the grant.
        (
            "lenient",
            alice(),
            1,
            away(),
            2,
            "on-call check lenient does not respond",
        ),
        (
            "unknown",
            alice(),
            1,
            Answer::Accepted,
            2,
            "set tickets.checks.unknown",
        ),
        // A response about another user, or about a user who has other groups by now.
        ("duty", bob, 1, Answer::Accepted, 8, "has not responded yet"),
        (
            "duty",
            other_groups,
            1,
            Answer::Accepted,
            8,
            "has not responded yet",
        ),
        (
            "duty",
            of_group,
            1,
            Answer::Accepted,
            8,
            "has not responded yet",
        ),
        // A response from before the request, and one that is too old.
        (
            "duty",
            alice(),
            -1,
            Answer::Accepted,
            8,
            "has not responded yet",
        ),
        (
            "duty",
            alice(),
            1,
            Answer::Accepted,
            1 + EVERY + TIMEOUT,
            "is asked again",
        ),
    ]
}

#[test]
fn other_responses_replace_no_approval() {
    for (check, person, asked_at, answer, now, note) in other_responses() {
        let mut world = unless(&[check]);
        world.on_call_said(person, check, asked_at, answer);
        let status = world.settle(timestamp(now));
        assert_eq!(status.phase, Phase::Pending, "{note}");
        let (_, reason, message) = world.approved_condition();
        assert_eq!(reason, "Waiting", "{message}");
        let start = "waiting for security: bob may; ";
        assert!(
            message.starts_with(start) && message.contains(note),
            "{message}"
        );
        assert_eq!(world.actions(), ["ApprovalRequested"]);

        // The approval is as valid as without the check, which the grant then does not seal.
        let given = self::answer(&world, "bob", true, now);
        world.approvals.push(given);
        assert_eq!(world.settle(timestamp(now + 1)).phase, Phase::Active);
        assert_eq!(grant(&world).on_call, None);
        assert_eq!(queries(&world.plan(timestamp(now + 2))), []);
        world.on_call_said(alice(), check, now + 2, off_call());
        assert_eq!(world.settle(timestamp(now + 3)).phase, Phase::Active);
    }
}

#[test]
fn response_counts_until_interval_and_timeout_have_passed() {
    let mut world = unless(&["duty"]);
    world.on_call_said(alice(), "duty", 1, Answer::Accepted);
    let last = world.plan(timestamp(1 + EVERY + TIMEOUT) - NANOSECOND);
    assert!(last.steps().any(|step| matches!(step, Step::Apply(_))));
}

#[test]
fn approvers_are_asked_if_the_check_does_not_respond_in_time() {
    let mut world = unless(&["duty"]);
    world.settle(timestamp(1));
    let last = timestamp(TIMEOUT + 5);
    assert_eq!(world.settle(last - NANOSECOND).phase, Phase::Pending);
    assert_eq!(world.approved_condition().1, "OnCallCheckPending");
    assert_eq!(world.actions(), [""; 0]);
    world.settle(last);
    assert_eq!(world.approved_condition().1, "Waiting");
    assert_eq!(world.actions(), ["ApprovalRequested"]);
}

#[test]
fn shift_that_begins_while_the_request_waits_replaces_the_approval() {
    let mut world = unless(&["duty"]);
    world.on_call_said(alice(), "duty", 1, off_call());
    world.settle(timestamp(2));
    assert_eq!(queries(&world.plan(timestamp(1 + EVERY) - NANOSECOND)), []);
    assert_eq!(queries(&world.plan(timestamp(1 + EVERY))).len(), 1);
    world.on_call_said(alice(), "duty", 1 + EVERY, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2 + EVERY)).phase, Phase::Active);
    assert_eq!(world.approved_condition().1, "OnCall");
}

#[test]
fn denial_denies_a_requester_who_is_on_call() {
    let mut world = unless(&["duty"]);
    world.on_call_said(alice(), "duty", 1, Answer::Accepted);
    let denial = answer(&world, "bob", false, 1);
    world.approvals.push(denial);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Denied);
    assert!(world.live.is_empty());
}

#[test]
fn check_for_a_group_is_asked_about_its_members() {
    let mut world = unless(&[]);
    world.config().approval.as_mut().unwrap().unless = ["devs", "sre"]
        .map(|group| OnCallCheck {
            check: "duty".into(),
            group: Some(group.into()),
        })
        .to_vec();
    world.stamp("alice", &["devs"]);
    let asked = queries(&world.pass(timestamp(1)));
    assert_eq!(
        asked,
        [("duty".into(), "alice".into(), Some("devs".into()), true)]
    );
    let person = |group: &str| Person {
        group: Some(group.into()),
        ..alice()
    };
    world.on_call_said(person("sre"), "duty", 1, Answer::Accepted);
    world.on_call_said(person("devs"), "duty", 1, off_call());
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Pending);
    let message = world.approved_condition().2;
    assert!(message.contains("not a member of the group"), "{message}");
    world.on_call_said(person("devs"), "duty", 3, Answer::Accepted);
    assert_eq!(world.settle(timestamp(4)).phase, Phase::Active);
    assert!(
        world
            .approved_condition()
            .2
            .ends_with("by duty of group devs")
    );
}

/// Returns a request with an access policy that requires carol's approval, unless one of these checks accepts the
/// requester.
fn judged(of_template: &[&str], of_policy: &[&str]) -> World {
    let mut world = unless(of_template);
    world.judgement = Some(Judgement {
        approval: Some(Extra {
            rules: vec![Rule {
                name: "prod/sre".into(),
                groups: Vec::new(),
                users: vec!["carol".into()],
                approvals: 1,
                silent: false,
                unless: checks(of_policy),
                escalation: None,
            }],
            timeout: "10m".into(),
            require_reason: false,
        }),
        ..Judgement::default()
    });
    world.stamp("alice", &["devs"]);
    world
}

#[test]
fn check_replaces_only_rules_of_its_own_source() {
    let table: [(&[&str], &[&str], &str, &str); 4] = [
        (&["duty"], &[], "duty", "waiting for prod/sre: carol may"),
        (&[], &["duty"], "duty", "waiting for security: bob may"),
        (
            &["duty"],
            &["lenient"],
            "duty",
            "waiting for prod/sre: carol may",
        ),
        (
            &["duty"],
            &["lenient"],
            "lenient",
            "waiting for security: bob may",
        ),
    ];
    for (of_template, of_policy, accepts, waits) in table {
        let mut world = judged(of_template, of_policy);
        for check in ["duty", "lenient"] {
            let answer = match check == accepts {
                true => Answer::Accepted,
                false => off_call(),
            };
            world.on_call_said(alice(), check, 1, answer);
        }
        assert_eq!(world.settle(timestamp(2)).phase, Phase::Pending);
        let message = world.approved_condition().2;
        assert!(message.starts_with(waits), "{message}");
    }

    let mut world = judged(&["duty"], &[]);
    world.on_call_said(alice(), "duty", 1, Answer::Accepted);
    world.settle(timestamp(2));
    let given = answer(&world, "carol", true, 3);
    world.approvals.push(given);
    assert_eq!(world.settle(timestamp(4)).phase, Phase::Active);
    assert_eq!(
        world.approved_condition().2,
        "Approved by carol (prod/sre); approval by security is replaced: the requester is on call \
         by duty"
    );
    // The approval of the access policy does not outlast the shift, which replaced the other one.
    world.on_call_said(alice(), "duty", 1 + EVERY, off_call());
    assert_eq!(world.settle(timestamp(2 + EVERY)).phase, Phase::Revoked);

    let mut world = judged(&["duty"], &["duty"]);
    world.on_call_said(alice(), "duty", 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
}

#[test]
fn grant_does_not_depend_on_a_check_that_replaced_no_rule() {
    let mut world = judged(&["duty"], &["lenient"]);
    let extra = world.judgement.as_mut().unwrap().approval.as_mut().unwrap();
    extra.rules.push(Rule {
        name: "night/security".into(),
        users: vec!["bob".into()],
        unless: Vec::new(),
        ..extra.rules[0].clone()
    });
    world.stamp("alice", &["devs"]);
    for check in ["duty", "lenient"] {
        world.on_call_said(alice(), check, 1, Answer::Accepted);
    }
    world.settle(timestamp(2));
    let message = world.approved_condition().2;
    assert!(
        message.starts_with("waiting for security: bob may"),
        "{message}"
    );
    let given = answer(&world, "bob", true, 3);
    world.approvals.push(given);
    assert_eq!(world.settle(timestamp(4)).phase, Phase::Active);
    let sealed = grant(&world).on_call.unwrap();
    assert_eq!(sealed.checks, checks(&["lenient"]));
    assert_eq!(sealed.rules, ["prod/sre"]);
    world.on_call_said(alice(), "duty", 5, off_call());
    assert_eq!(world.settle(timestamp(6)).phase, Phase::Active);
    world.on_call_said(alice(), "lenient", 7, off_call());
    assert_eq!(world.settle(timestamp(8)).phase, Phase::Revoked);
}

#[test]
fn rule_in_common_escalates_while_a_check_replaces_its_other_source() {
    let mut world = judged(&["duty"], &[]);
    let escalation = Some(Escalation {
        after: "5m".into(),
        groups: Vec::new(),
        users: vec!["dave".into()],
        notify: true,
    });
    let rules = &mut world.config().approval.as_mut().unwrap().rules;
    rules.push(ApprovalRule {
        name: "leads".into(),
        users: vec!["erin".into()],
        ..rules[0].clone()
    });
    rules[0].escalation.clone_from(&escalation);
    let extra = world.judgement.as_mut().unwrap().approval.as_mut().unwrap();
    extra.rules[0].users = vec!["bob".into()];
    extra.rules[0].escalation = escalation;
    world.stamp("alice", &["devs"]);
    world.on_call_said(alice(), "duty", 299, Answer::Accepted);
    let status = world.settle(timestamp(300));
    let message = world.approved_condition().2;
    let expected = "waiting for prod/sre: bob, dave may";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(status.approval.unwrap().escalated, ["security"]);
    let record = world.records.last().unwrap();
    assert_eq!(record.action, Action::ApprovalEscalated);
    assert!(!record.details.contains_key("notify"));
}

/// Returns a grant of an hour for which a check replaced the approval in the first second.
fn granted(check: &str) -> World {
    let mut world = unless(&[check]);
    world.request.spec.duration = Some("1h".into());
    world.stamp("alice", &["devs"]);
    world.on_call_said(alice(), check, 1, Answer::Accepted);
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
    world
}

#[test]
fn grant_asks_at_each_interval_and_ends_with_the_shift() {
    for check in ["duty", "lenient"] {
        let mut world = granted(check);
        let early = world.plan(timestamp(1 + EVERY) - NANOSECOND);
        assert_eq!(
            (queries(&early), early.wake),
            (vec![], Some(timestamp(1 + EVERY)))
        );
        let due = world.plan(timestamp(1 + EVERY));
        assert_eq!(queries(&due), [(check.into(), "alice".into(), None, false)]);
        assert_eq!(due.wake, Some(timestamp(1 + 2 * EVERY)));
        // A template that names no check any more does not change the grant.
        world.config().approval.as_mut().unwrap().unless.clear();
        world.on_call_said(alice(), check, 61, Answer::Accepted);
        assert_eq!(world.settle(timestamp(62)).phase, Phase::Active);

        world.on_call_said(alice(), check, 121, off_call());
        let status = world.settle(timestamp(122));
        assert_eq!(status.phase, Phase::Revoked, "{check}");
        let ending = status.ending.unwrap();
        assert_eq!(ending.reason, EndReason::OnCallEnded);
        let detail = ending.detail.unwrap();
        assert!(
            detail.starts_with("alice is no longer on call by"),
            "{detail}"
        );
        assert!(world.live.is_empty());
        assert_eq!(world.ended.len(), 1);
        assert_eq!(world.records.last().unwrap().reason, "OnCallEnded");
        let (status, reason, _) = world.approved_condition();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "OnCallEnded"));
        // The next shift does not restore the grant.
        world.on_call_said(alice(), check, 181, Answer::Accepted);
        assert_eq!(world.settle(timestamp(182)).phase, Phase::Revoked);
    }
}

#[test]
fn outage_ends_a_grant_only_with_failure_policy_fail_and_never_extends_it() {
    let away_since_61 = |check| {
        let mut world = granted(check);
        world.on_call_said(alice(), check, 61, away());
        world.on_call_said(alice(), check, 121, away());
        world
    };
    let gives_up = timestamp(61 + 5 * EVERY);
    let mut strict = away_since_61("duty");
    assert_eq!(strict.settle(gives_up - NANOSECOND).phase, Phase::Active);
    assert!(strict.plan(gives_up - NANOSECOND).wake <= Some(gives_up));
    let mut back = strict.clone();
    back.on_call_said(alice(), "duty", 200, Answer::Accepted);
    assert_eq!(back.settle(gives_up).phase, Phase::Active);
    let status = strict.settle(gives_up);
    assert_eq!(status.phase, Phase::Revoked);
    let reason = status.ending.unwrap().reason;
    assert_eq!(reason, EndReason::OnCallCheckUnavailable);

    let mut lenient = away_since_61("lenient");
    assert_eq!(lenient.settle(timestamp(3_600)).phase, Phase::Active);
    assert_eq!(lenient.settle(timestamp(3_601)).phase, Phase::Expired);
}
