//! Rules that all kinds of access share, with their effects on dedicated pods: emergencies, approvals, change tickets and
//! on-call checks. The pod and the binding end together.

use std::collections::BTreeMap;
use std::sync::Arc;

use oz_api::{
    AccessConfig, ApprovalConfig, ApprovalRule, EndReason, OnCallCheck, Phase, TicketConfig,
    conditions,
};
use serde_json::json;

use super::world::*;
use crate::access::pod::PodAccess;
use crate::access::testing::InMemory as _;
use crate::tickets::{Answer, CheckTerms, Person, Said};

/// The one check, which is asked every minute.
const CHECK: &str = "desk";

fn config(world: &mut World) -> &mut AccessConfig {
    PodAccess::config_mut(world.template.as_mut().unwrap())
}

/// Requires the approval of bob within ten minutes, unless one of these checks accepts the requester.
fn approval(unless: &[&str]) -> Option<ApprovalConfig> {
    let check = |name: &&str| OnCallCheck {
        check: (*name).to_owned(),
        group: None,
    };
    Some(ApprovalConfig {
        rules: vec![ApprovalRule {
            name: "security".into(),
            groups: Vec::new(),
            users: vec!["bob".into()],
            approvals: 1,
            notify: true,
            escalation: None,
        }],
        when: None,
        timeout: "10m".into(),
        require_reason: false,
        unless: unless.iter().map(check).collect(),
    })
}

/// Returns the emergency of dana, by a template that requires the approval of bob without an emergency.
fn emergency() -> World {
    let mut world = World::new();
    let terms = json!({
        "users": ["dana"], "maxDuration": "3m", "openReviews": 2,
        "review": {"deadline": "24h", "groups": ["security"]},
    });
    let config = config(&mut world);
    config.approval = approval(&[]);
    config.emergency = serde_json::from_value(terms).unwrap();
    world.request.spec.emergency = Some(true);
    world.request.spec.reason = Some("INC-42".into());
    world.stamp("dana", &["oncall"]);
    world
}

/// Returns the configured checks.
fn checks() -> Option<Arc<BTreeMap<String, CheckTerms>>> {
    let checks = BTreeMap::from([(CHECK.to_owned(), CheckTerms::UNKNOWN)]);
    Some(Arc::new(checks))
}

/// Returns the response of the check at this second.
fn said(second: i64, answer: Answer) -> BTreeMap<String, Said> {
    let said = Said {
        asked_at: timestamp(second),
        answer,
        away_since: None,
    };
    BTreeMap::from([(CHECK.to_owned(), said)])
}

fn refused() -> Answer {
    Answer::Refused("the server responded 200, and accept is false".into())
}

/// Carries out the passes of the first two seconds, between which the pod becomes ready, and returns the phase.
fn phase_with_ready_pod(world: &mut World) -> Phase {
    world.settle(timestamp(1));
    world.start(timestamp(1));
    world.settle(timestamp(2)).phase
}

/// Asserts that the pod and the binding end in the third minute, for this reason.
fn assert_ends(world: &mut World, reason: EndReason) {
    world.settle(timestamp(122));
    assert!(!world.kinds().contains(&"RoleBinding"));
    world.remove("Pod");
    let status = world.settle(timestamp(123));
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(status.ending.unwrap().reason, reason);
    assert!(world.live.is_empty());
}

#[test]
fn emergency_gets_dedicated_pod_without_approval() {
    let mut world = emergency();
    assert_eq!(phase_with_ready_pod(&mut world), Phase::Active);
    let status = world.status();
    assert_eq!(status.approval, None);
    assert_eq!(status.expires_at, Some(timestamp(180)));
    assert_eq!(world.condition(conditions::EMERGENCY).0, "True");
    assert_eq!(world.actions(), ["EmergencyGranted"]);
}

#[test]
fn emergency_with_invalid_terms_gets_no_dedicated_pod() {
    for deadline in ["", "soon", "-1h"] {
        let mut world = emergency();
        let terms = config(&mut world).emergency.as_mut().unwrap();
        terms.review.deadline = deadline.into();
        let phase = world.settle(timestamp(1)).phase;
        assert_eq!(phase, Phase::Pending, "{deadline}");
        assert!(world.live.is_empty(), "{deadline}");
    }
}

#[test]
fn approvers_of_dedicated_pod_are_asked_once() {
    let mut world = World::new();
    config(&mut world).approval = approval(&[]);
    world.settle(timestamp(1));
    let status = world.settle(timestamp(2));
    assert_eq!(status.approval.unwrap().until, timestamp(600));
    assert_eq!(world.actions(), ["ApprovalRequested"]);
    let asked = &world.records[0];
    assert_eq!(asked.details["approvers"], "security: bob may");
    assert!(world.live.is_empty());
}

#[test]
fn dedicated_pod_ends_when_its_change_ticket_is_closed() {
    let mut world = World::new();
    config(&mut world).ticket = Some(TicketConfig {
        pattern: None,
        check: Some(CHECK.to_owned()),
    });
    world.request.spec.ticket = Some("INC-42".into());
    world.stamp("alice", &["devs"]);
    world.tickets.checks = checks();
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
    assert!(world.live.is_empty());

    world.tickets.said = said(1, Answer::Accepted);
    assert_eq!(phase_with_ready_pod(&mut world), Phase::Active);
    world.tickets.said = said(121, refused());
    assert_ends(&mut world, EndReason::TicketClosed);
}

#[test]
fn dedicated_pod_ends_with_the_shift_that_replaced_its_approval() {
    let alice = Person {
        user: "alice".into(),
        groups: vec!["devs".into()],
        ..Person::default()
    };
    let mut world = World::new();
    config(&mut world).approval = approval(&[CHECK]);
    world.tickets.checks = checks();
    world.tickets.on_call = BTreeMap::from([(alice.clone(), said(1, Answer::Accepted))]);
    assert_eq!(phase_with_ready_pod(&mut world), Phase::Active);
    world.tickets.on_call = BTreeMap::from([(alice, said(121, refused()))]);
    assert_ends(&mut world, EndReason::OnCallEnded);
}
