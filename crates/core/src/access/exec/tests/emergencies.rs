//! Grants without approvals, since the request declares an emergency.

#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables whose rows the formatter spreads over many lines"
)]

use oz_api::{Bind, EmergencyConfig, Phase, ReviewConfig, conditions};
use oz_trail::Action;

use super::world::*;
use crate::access::emergency::{on_record, review, subject};
use crate::access::kind::Question;
use crate::controller::{Failure, Step};

/// Returns the emergency of dana, of the group oncall, with a reason; by a template that requires the approval of bob and
/// grants carol and oncall access in an emergency.
fn world() -> World {
    let mut world = World::new();
    world.config().approval = Some(approval(&["bob"], None));
    world.config().emergency = Some(EmergencyConfig {
        groups: vec!["oncall".into()],
        users: vec!["carol".into()],
        max_duration: "3m".into(),
        review: ReviewConfig {
            deadline: "24h".into(),
            groups: vec!["security".into()],
            users: Vec::new(),
        },
        open_reviews: 2,
    });
    asks(&mut world, true, Some("INC-42"));
    world
}

/// Sets emergency and reason of the request, and stamps it.
fn asks(world: &mut World, emergency: bool, reason: Option<&str>) {
    world.request.spec.emergency = emergency.then_some(true);
    world.request.spec.reason = reason.map(ToOwned::to_owned);
    world.stamp("dana", &["oncall"]);
}

#[test]
fn an_emergency_is_granted_at_once_for_as_long_as_the_template_says_and_loudly() {
    let mut world = world();
    let status = world.settle(timestamp(2));
    assert_eq!(status.phase, Phase::Active);
    assert!(status.ready);
    // The requested five minutes count from the creation of the request, as without approvals.
    assert_eq!(status.expires_at, Some(timestamp(180)));
    assert_eq!(status.approval, None);
    assert!(conditions::find(&status.conditions, conditions::APPROVED).is_none());
    let loud = conditions::find(&status.conditions, conditions::EMERGENCY).unwrap();
    assert_eq!(loud.status, "True");
    assert!(loud.message.starts_with("EMERGENCY: "), "{}", loud.message);
    assert!(
        loud.message.contains("by group security"),
        "{}",
        loud.message
    );
    assert_eq!(world.actions(), [Action::EmergencyGranted.to_string()]);
    let grant = world.decision("Role");
    let emergency = grant.emergency.unwrap();
    assert_eq!(emergency.due_at, timestamp(2 + 24 * 60 * 60));
    assert_eq!(grant.subjects.len(), 1);
    assert_eq!(grant.subjects[0].name, "dana");
}

#[test]
fn an_emergency_costs_as_many_writes_as_any_other_grant() {
    let mut plain = World::new();
    plain.settle(timestamp(1));
    let mut emergency = world();
    emergency.settle(timestamp(1));
    assert_eq!(emergency.writes, plain.writes);
}

#[test]
fn the_record_is_durable_before_anybody_gets_in_and_makes_the_same_review_after_any_crash() {
    let keys = keys();
    let made = |world: &World| {
        let record = world.records.first()?;
        let found = on_record(&keys, record)?;
        let found = subject::Subject::Emergency(found);
        let made = subject::opened(&keys, &found, review::records_so_far(Vec::new()), None);
        made.unwrap()
            .map(|review| (review.metadata.name, review.spec.due_at))
    };
    let mut whole = world();
    whole.settle(timestamp(1));
    let expected = made(&whole);
    assert!(expected.is_some());
    for writes in 0..6 {
        let mut world = world();
        world.writes_left = writes;
        world.pass(timestamp(1));
        if world.kinds().contains(&"RoleBinding") {
            assert_eq!(made(&world), expected, "killed after {writes} writes");
        }
        world.writes_left = usize::MAX;
        world.settle(timestamp(2));
        let due = |made: Option<(Option<String>, _)>| made.map(|(name, _)| name);
        assert_eq!(due(made(&world)), due(expected.clone()), "{writes}");
    }
}

#[test]
fn emergency_is_not_granted_without_audit_record() {
    let mut world = world();
    world.records_fail = true;
    world.pass(timestamp(1));
    assert!(
        !world.kinds().contains(&"RoleBinding"),
        "{:?}",
        world.kinds()
    );
}

#[test]
fn emergency_binds_requester_only_despite_template_groups() {
    let mut world = world();
    world.config().bind = Bind::Groups;
    world.config().on_pod_replacement = oz_api::OnPodReplacement::Revoke;
    world.settle(timestamp(1));
    let subjects = world.decision("Role").subjects;
    let names: Vec<&str> = subjects.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["dana"]);
}

/// The requester, the reason, the declaration of an emergency, the emergency rule of the template, its approval rule,
/// and the number of the requester's unreviewed emergencies.
type Row = (
    (&'static str, &'static [&'static str]),
    Option<&'static str>,
    bool,
    bool,
    bool,
    usize,
);

#[test]
fn requester_template_open_reviews_and_approvals_decide() {
    let (dana, carol, alice): ((&str, &[&str]), (&str, &[&str]), (&str, &[&str])) =
        (("dana", &["oncall"]), ("carol", &[]), ("alice", &["devs"]));
    let why = Some("INC-42");
    let (granted, waiting) = ("Active", "Pending");
    let rows: [(Row, &str); 19] = [
        ((dana, why, true, true, true, 0), granted),
        ((dana, why, true, true, true, 1), granted),
        ((dana, why, true, true, true, 2), "TooManyOpenReviews"),
        ((dana, why, true, true, true, 7), "TooManyOpenReviews"),
        ((dana, why, true, true, false, 0), granted),
        ((dana, why, true, true, false, 2), "TooManyOpenReviews"),
        ((carol, why, true, true, true, 1), granted),
        ((carol, None, true, true, true, 0), "ReasonRequired"),
        (
            (carol, why, true, false, true, 0),
            "EmergencyAccessDisabled",
        ),
        ((carol, why, false, true, true, 0), "NotAllowed"),
        ((dana, why, false, true, false, 0), "NotAllowed"),
        ((alice, why, true, true, true, 0), "EmergencyNotAllowed"),
        ((alice, why, true, true, false, 0), "EmergencyNotAllowed"),
        (
            (alice, why, true, false, false, 0),
            "EmergencyAccessDisabled",
        ),
        ((alice, why, false, true, true, 0), waiting),
        ((alice, None, false, true, true, 5), waiting),
        ((alice, why, false, true, false, 0), granted),
        // Unreviewed emergencies do not block a request that declares no emergency.
        ((alice, None, false, true, false, 9), granted),
        ((alice, None, false, false, false, 0), granted),
    ];
    for (row, expected) in rows {
        let ((user, groups), reason, emergency, offers, approvals, open) = row;
        let mut world = world();
        asks(&mut world, emergency, reason);
        world.stamp(user, groups);
        world.unreviewed = Some(Ok(vec!["uid".to_owned(); open]));
        if !offers {
            world.config().emergency = None;
        }
        if !approvals {
            world.config().approval = None;
        }
        let status = world.settle(timestamp(1));
        let refused = status
            .conditions
            .iter()
            .find(|one| one.status == "False" && one.type_ == conditions::ACCESS_STILL_VALID);
        let decided = match status.phase {
            Phase::Denied => refused.unwrap().reason.clone(),
            phase => phase.to_string(),
        };
        assert_eq!(decided, expected, "{row:?}");
        let loud = conditions::is_true(&status.conditions, conditions::EMERGENCY);
        assert_eq!(loud, emergency && decided == granted, "{row:?}");
    }
}

#[test]
fn unreviewed_count_is_required_for_emergencies_only() {
    let mut world = world();
    let mut known = world.facts();
    known.unreviewed = None;
    let asked = world.asks(timestamp(1), &known);
    let Some(Question::Emergencies(place)) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((place.requester.user.as_str(), place.most), ("dana", 2));
    world.unreviewed = Some(Err(Failure::transient("NotReady", "not yet")));
    let status = world.settle(timestamp(1));
    assert_eq!(status.phase, Phase::Pending);
    assert!(world.live.is_empty());
    asks(&mut world, false, None);
    world.stamp("alice", &["devs"]);
    world.config().approval = None;
    let mut known = world.facts();
    known.unreviewed = None;
    assert!(!matches!(
        world.asks(timestamp(1), &known),
        Some(Question::Emergencies(_))
    ));
}

#[test]
fn a_request_that_was_made_an_emergency_after_its_stamp_is_denied() {
    let mut world = world();
    asks(&mut world, false, Some("INC-42"));
    world.request.spec.emergency = Some(true);
    let status = world.settle(timestamp(1));
    assert_eq!(status.phase, Phase::Denied);
    let why = conditions::find(&status.conditions, conditions::REQUESTER_VERIFIED).unwrap();
    assert_eq!(why.reason, "StampOfAnotherRequest");
    assert!(world.live.is_empty());
}

#[test]
fn a_template_that_says_it_in_a_way_that_cannot_be_used_grants_nothing() {
    for broken in ["", "soon", "-1h"] {
        let mut world = world();
        world.config().emergency.as_mut().unwrap().review.deadline = broken.into();
        let status = world.settle(timestamp(1));
        assert_eq!(status.phase, Phase::Pending, "{broken}");
        assert!(world.live.is_empty(), "{broken}");
        let plan = world.plan(timestamp(1));
        let writes = plan.steps().any(|step| matches!(step, Step::Apply(_)));
        assert!(!writes, "{broken}");
    }
}
