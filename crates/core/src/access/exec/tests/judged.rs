//! A grant under access policies: the judgement in the stamp decides, and no other data.

use oz_api::{Phase, conditions};
use oz_trail::Action;

use super::world::*;
use crate::access::grant::Grant;
use crate::access::policy::{Applied, Extra, Judgement, Longest, Refused, Rule, When, seen};

/// Returns the judgement of one matching access policy about the current template.
fn judgement(world: &World) -> Judgement {
    Judgement {
        template: world.template.as_ref().map(seen),
        asked: 1,
        policies: vec![Applied {
            name: "prod".into(),
            digest: "sha256:1".into(),
        }],
        ..Judgement::default()
    }
}

fn judged(change: impl FnOnce(&mut Judgement)) -> World {
    let mut world = World::new();
    let mut judgement = judgement(&world);
    change(&mut judgement);
    world.judgement = Some(judgement);
    world.stamp("alice", &["devs"]);
    world
}

fn said(world: &World, type_: &str) -> (String, String) {
    let status = world.status();
    let found = conditions::find(&status.conditions, type_).unwrap();
    (found.reason.clone(), found.message.clone())
}

fn security() -> Extra {
    Extra {
        rules: vec![Rule {
            name: "prod/security".into(),
            groups: Vec::new(),
            users: vec!["bob".into()],
            approvals: 1,
            silent: false,
            unless: Vec::new(),
            escalation: None,
        }],
        timeout: "10m".into(),
        require_reason: false,
    }
}

#[test]
fn matched_policies_are_recorded_and_sealed_in_grant() {
    let mut world = judged(|_| ());
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
    let granted = &world.records[0];
    assert_eq!(granted.action, Action::AccessGranted);
    assert_eq!(granted.details["policies"], "prod sha256:1");
    let grant = Grant::open_any(&keys(), &world.live[0].object.metadata).unwrap();
    assert_eq!(grant.policies[0].name, "prod");
}

#[test]
fn a_sealed_refusal_is_a_denial() {
    for (failed, reason) in [(false, "PolicyDenied"), (true, "PolicyFailed")] {
        let mut world = judged(|judgement| {
            judgement.refused = Some(Refused {
                policy: "prod".into(),
                failed,
                message: "AccessPolicy prod refuses it: not now".into(),
            });
        });
        let status = world.settle(timestamp(1));
        assert_eq!((status.phase, world.live.len()), (Phase::Denied, 0));
        let (found, message) = said(&world, conditions::REQUESTER_VERIFIED);
        assert_eq!(found, reason);
        assert!(message.contains("not now"));
    }
}

#[test]
fn a_reason_that_a_policy_requires_must_be_there() {
    let mut world = judged(|judgement| judgement.require_reason = Some("prod".into()));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
    assert_eq!(
        said(&world, conditions::REQUESTER_VERIFIED).0,
        "ReasonRequired"
    );
}

#[test]
fn a_policy_shortens_and_never_lengthens() {
    for (longest, until) in [("2m", 120), ("5m", 300), ("48h", 300), ("nonsense", 0)] {
        let mut world = judged(|judgement| {
            judgement.longest = Some(Longest {
                policy: "prod".into(),
                duration: longest.into(),
            });
        });
        let status = world.settle(timestamp(1));
        let end = (until > 0).then(|| timestamp(until));
        assert_eq!(status.expires_at, end, "{longest}");
    }
}

#[test]
fn approval_by_access_policy_is_required_without_template_rules() {
    let mut world = judged(|judgement| judgement.approval = Some(security()));
    let status = world.settle(timestamp(1));
    assert_eq!((status.phase, world.live.len()), (Phase::Pending, 0));
    let (_, message) = said(&world, conditions::APPROVED);
    assert_eq!(message, "waiting for prod/security: bob may");
    assert_eq!(status.approval.unwrap().until, timestamp(600));
}

#[test]
fn a_template_that_changed_in_what_policies_see_is_not_granted_by() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 4] = [
        ("a label", |world| {
            let template = world.template.as_mut().unwrap();
            template.metadata.labels = Some([("tier".to_owned(), "test".to_owned())].into());
        }),
        ("an annotation", |world| {
            let template = world.template.as_mut().unwrap();
            template.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        }),
        ("the spec", |world| {
            world.config().max_duration = "1h".into()
        }),
        ("another of its name", |world| {
            world.template.as_mut().unwrap().metadata.uid = Some("other".into());
        }),
    ];
    for (what, change) in changes {
        let mut world = judged(|_| ());
        change(&mut world);
        assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied, "{what}");
        let reason = said(&world, conditions::REQUESTER_VERIFIED).0;
        assert_eq!(reason, "PolicyOutdated", "{what}");
    }
    // Without access policies a change of the template is permitted, as before.
    let mut world = judged(|judgement| judgement.asked = 0);
    world.config().max_duration = "1h".into();
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
}

/// Returns a template with conditional rules, and a stamp with the result of the condition.
fn conditional(when: Option<When>) -> World {
    let mut world = World::new();
    let condition = "request.namespace == 'prod'";
    world.config().approval = Some(approval(&["bob"], Some(condition)));
    world.judgement = when.map(|when| Judgement {
        template: world.template.as_ref().map(seen),
        when: Some(when),
        ..Judgement::default()
    });
    world.stamp("alice", &["devs"]);
    world
}

#[test]
fn rules_under_a_condition_apply_unless_it_is_sealed_that_they_do_not() {
    for (when, phase, message) in [
        (Some(When::Exempts), Phase::Active, None),
        (
            Some(When::Applies),
            Phase::Pending,
            Some("waiting for security: bob may"),
        ),
        (
            Some(When::Failed("No such key: tier".into())),
            Phase::Pending,
            Some(
                "failed to evaluate spec.accessConfig.approval.when of the template (No such key: tier), so its rules apply",
            ),
        ),
        (None, Phase::Pending, Some("waiting for security: bob may")),
    ] {
        let mut world = conditional(when.clone());
        assert_eq!(world.settle(timestamp(1)).phase, phase, "{when:?}");
        if let Some(message) = message {
            let found = said(&world, conditions::APPROVED).1;
            assert!(found.contains(message), "{when:?}: {found}");
        }
    }
}

#[test]
fn exemption_by_other_template_does_not_hold() {
    let mut world = conditional(Some(When::Exempts));
    world.config().approval.as_mut().unwrap().when = Some("true".into());
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
}
