//! Grants that end on time although one kind cannot be listed, by the data of the other kinds.

use oz_api::Phase;
use oz_trail::Action;

use super::world::*;
use crate::controller::{Controller, Live, Step};

fn granted() -> World {
    let mut world = World::new();
    world.settle(timestamp(1));
    world
}

fn of_kind(world: &World, kind: &str) -> Vec<Live> {
    let live = world.live.iter().filter(|live| live.resource.kind == kind);
    live.cloned().collect()
}

#[test]
fn until_when_a_grant_lasts_is_known_from_its_role_its_binding_or_its_status() {
    let world = granted();
    for kind in ["Role", "RoleBinding"] {
        let live = of_kind(&world, kind);
        assert_eq!(live.len(), 1, "{kind}");
        let lasts = |object| world.controller.lasts_until(object, &live);
        assert_eq!(lasts(None), Some(timestamp(300)), "{kind}");
        assert_eq!(lasts(Some(&world.request)), Some(timestamp(300)), "{kind}");
    }
    let lasts = |object, live: &[Live]| world.controller.lasts_until(object, live);
    assert_eq!(lasts(Some(&world.request), &[]), Some(timestamp(300)));
    assert_eq!(lasts(None, &[]), None);
}

#[test]
fn neither_a_forged_mark_nor_a_request_without_a_grant_says_when_something_ends() {
    let world = granted();
    let mut forged = of_kind(&world, "Role");
    for live in &mut forged {
        live.object.metadata.name = Some("another".to_owned());
    }
    assert_eq!(world.controller.lasts_until(None, &forged), None);
    let waiting = World::new();
    let lasts = waiting.controller.lasts_until(Some(&waiting.request), &[]);
    assert_eq!(lasts, None);
}

#[test]
fn grant_expires_although_role_or_binding_is_unknown() {
    for known in ["Role", "RoleBinding", "neither"] {
        let mut world = granted();
        world.live = of_kind(&world, known);
        let plan = world.plan(timestamp(300));
        let drift = |step: &Step| matches!(step, Step::Record(record) if record.action == Action::DriftDetected);
        assert!(!plan.steps().any(drift), "{known}: {plan:?}");
        // The plan looks for the unknown objects.
        let looks = |step: &Step| matches!(step, Step::Look(_));
        assert!(plan.steps().any(looks), "{known}: {plan:?}");
        assert_eq!(
            world.settle(timestamp(300)).phase,
            Phase::Expired,
            "{known}"
        );
    }
}
