//! Grants with a reserved name for the Role: the name is decided with the Role, is found again after any failure, and
//! is freed with the other objects.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::DynamicObject;
use oz_api::{Phase, labels, names};
use serde_json::json;

use super::hidden::{WAYS, binding};
use super::world::*;
use crate::access::kind::Question;
use crate::access::leftover::{Finding, Sweep};
use crate::controller::{Controller, Live, Step};

fn reserved(number: u16) -> World {
    let mut world = World::new();
    world.role_name = Some(names::grant_role(number));
    world
}

fn granted() -> World {
    let mut world = reserved(7);
    world.settle(timestamp(1));
    world
}

fn names_of(world: &World) -> Vec<(String, String)> {
    let key = |live: &Live| (live.resource.kind.clone(), live.key().name.unwrap());
    world.live.iter().map(key).collect()
}

fn both() -> Vec<(String, String)> {
    [("Role", "oz-grant-007"), ("RoleBinding", "debug-0a1b2c3d")]
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
        .to_vec()
}

#[test]
fn the_role_has_the_reserved_name_and_all_else_its_own() {
    let world = granted();
    assert_eq!(names_of(&world), both());
    let bound: RoleBinding = world.live[1].parse().unwrap();
    assert_eq!(bound.role_ref.name, "oz-grant-007");
    let status = world.status();
    assert_eq!(status.phase, Phase::Active);
    assert_eq!(status.role_name.as_deref(), Some("oz-grant-007"));
}

#[test]
fn binding_search_uses_watch_for_reserved_names_and_lists_otherwise() {
    let mut kept = World::new();
    kept.kept = true;
    for (world, expected) in [
        (reserved(7), &[true][..]),
        (kept, &[true]),
        (World::new(), &[false, false]),
    ] {
        let plan = world.plan(timestamp(1));
        let looks = plan.steps().filter_map(|step| match step {
            Step::Look(sought) => Some(sought.watched),
            _ => None,
        });
        assert_eq!(looks.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_name_is_asked_for_once_everything_else_is_known_and_not_again() {
    let world = reserved(7);
    let mut facts = world.facts();
    facts.role_name = None;
    let asked = world.asks(timestamp(1), &facts);
    assert!(matches!(asked, Some(Question::RoleName(bound)) if bound.is_empty()));
    assert!(granted().asks(timestamp(1), &facts).is_none());
    // A request that is denied anyway needs no name.
    let mut world = reserved(7);
    world.stamp("mallory", &[]);
    assert!(world.asks(timestamp(1), &facts).is_none());
}

#[test]
fn whenever_the_process_dies_the_name_that_was_decided_stays_and_nothing_is_left() {
    for first in 0..6 {
        for second in 0..6 {
            let mut world = reserved(7);
            world.writes_left = first;
            world.pass(timestamp(1));
            world.pass(timestamp(1));
            let decided = world.kinds().contains(&"Role");
            // Another process would choose another name.
            world.role_name = Some(names::grant_role(9));
            world.writes_left = usize::MAX;
            world.settle(timestamp(2));
            let name = if decided {
                "oz-grant-007"
            } else {
                "oz-grant-009"
            };
            assert_eq!(world.status().role_name.as_deref(), Some(name), "{first}");
            let roles = world.kinds().iter().filter(|kind| **kind == "Role").count();
            assert_eq!(roles, 1, "{first}");
            world.writes_left = second;
            world.pass(timestamp(300));
            world.pass(timestamp(300));
            world.role_name = Some(names::grant_role(3));
            world.writes_left = usize::MAX;
            assert_eq!(world.settle(timestamp(301)).phase, Phase::Expired);
            assert!(
                world.live.is_empty(),
                "{first} {second}: {:?}",
                names_of(&world)
            );
        }
    }
}

#[test]
fn a_role_that_gets_no_number_has_the_name_of_its_request_and_keeps_it() {
    let mut world = World::new();
    world.settle(timestamp(1));
    world.role_name = Some(names::grant_role(7));
    let status = world.settle(timestamp(2));
    let own = "oz-grant-debug-0a1b2c3d";
    let told = status.role_name.as_deref();
    assert_eq!((status.phase, told), (Phase::Active, Some(own)));
    let expected = [("Role", own), ("RoleBinding", "debug-0a1b2c3d")]
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    assert_eq!(names_of(&world), expected);
    let role: Role = world.live[0].parse().unwrap();
    assert!(
        role.metadata
            .labels
            .unwrap()
            .contains_key(labels::GRANT_ROLE)
    );
}

#[test]
fn grant_with_drift_is_revoked_without_remains() {
    let changes: [fn(&mut World); 5] = [
        |world| world.edit("Role", |role| role.data["rules"] = json!([])),
        |world| {
            world.edit("RoleBinding", |binding| {
                binding.data["subjects"] = json!([])
            })
        },
        |world| world.remove("Role"),
        |world| world.remove("RoleBinding"),
        // The Role under another name, with the same content.
        |world| {
            world.edit("Role", |role| {
                role.metadata.name = Some("oz-grant-008".to_owned())
            })
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut world = granted();
        change(&mut world);
        assert_eq!(
            world.settle(timestamp(10)).phase,
            Phase::Revoked,
            "{number}"
        );
        assert!(world.live.is_empty(), "{number}: {:?}", names_of(&world));
    }
}

#[test]
fn a_role_that_is_hidden_is_found_by_the_name_that_the_status_knows() {
    for (number, hide) in WAYS.into_iter().enumerate() {
        let mut world = granted();
        world.hide("Role", hide);
        assert_eq!(world.settle(timestamp(10)).phase, Phase::Revoked);
        assert!(world.live.is_empty() && world.hidden.is_empty(), "{number}");
    }
    let mut world = granted();
    world.pass(timestamp(300));
    world.hide("Role", |metadata| metadata.labels = None);
    world.settle(timestamp(301));
    assert!(world.live.is_empty() && world.hidden.is_empty());
}

#[test]
fn the_role_of_another_grant_that_has_the_name_since_stays() {
    let mut world = granted();
    let mut other = world.live[0].clone();
    other.object.metadata.uid = Some("another-role".to_owned());
    let metadata = &mut other.object.metadata;
    metadata.annotations.get_or_insert_default().insert(
        oz_api::labels::GRANT.to_owned(),
        "{\"sealed\":\"for another\"}".to_owned(),
    );
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(oz_api::labels::OWNER_UID.to_owned(), "another".to_owned());
    world.remove("Role");
    world.hidden.push(other);
    assert_eq!(world.settle(timestamp(10)).phase, Phase::Revoked);
    let left: Vec<_> = world.live.iter().map(|live| live.reference().uid).collect();
    assert_eq!(left, [Some("another-role".to_owned())]);
}

#[test]
fn a_name_that_others_bind_to_is_not_used() {
    let mut world = reserved(7);
    world.live.push(binding("innocent", "oz-grant-007"));
    let mut facts = world.facts();
    facts.role_name = None;
    match world.asks(timestamp(1), &facts) {
        Some(Question::RoleName(bound)) => assert_eq!(bound, ["oz-grant-007"]),
        other => panic!("{other:?}"),
    }
    // A process that assigns the name nevertheless does not grant access by it.
    world.live.clear();
    world.hidden.push(binding("innocent", "oz-grant-007"));
    let status = world.settle(timestamp(1));
    assert_eq!(status.phase, Phase::Pending);
    assert_eq!(status.foreign_bindings, ["innocent"]);
    assert!(!world.kinds().contains(&"Role"));
    // With another name, the request is granted.
    world.role_name = Some(names::grant_role(8));
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
}

#[test]
fn a_role_that_only_bears_the_marks_is_not_taken_for_the_decision() {
    let mut world = granted();
    let mut forged = world.live[0].clone();
    forged.object.metadata.name = Some("oz-grant-001".to_owned());
    forged.object.metadata.uid = Some("forged".to_owned());
    world.live.insert(0, forged);
    assert_eq!(world.settle(timestamp(10)).phase, Phase::Active);
    assert_eq!(world.settle(timestamp(300)).phase, Phase::Expired);
    assert!(world.live.is_empty());
}

#[test]
fn a_sweep_knows_reserved_names() {
    let keys = keys();
    let world = granted();
    let role: Role = world.live[0].parse().unwrap();
    assert_eq!(role.metadata.name.as_deref(), Some("oz-grant-007"));
    let mut sweep = Sweep::new(&keys, timestamp(10));
    assert_eq!(sweep.role(&world.live[0]), Finding::Nothing);
    assert_eq!(sweep.binding(&world.live[1]), Finding::Nothing);
    let foreign = |finding| matches!(finding, Finding::Foreign(_));
    assert!(foreign(sweep.binding(&binding("mallorys", "oz-grant-007"))));
    assert!(foreign(sweep.binding(&binding("mallorys", "oz-grant-123"))));
    let mut hidden = world.live[0].clone();
    hidden.object.metadata.labels = None;
    assert!(matches!(sweep.role(&hidden), Finding::Hidden(_)));
    // A copy under another name is not in its place.
    let mut copy: DynamicObject = world.live[0].object.clone();
    copy.metadata.name = Some("oz-grant-008".to_owned());
    let copy = Live {
        object: copy,
        ..world.live[0].clone()
    };
    assert!(foreign(sweep.role(&copy)));
    let after = world
        .controller
        .lasts_until(None, std::slice::from_ref(&copy));
    assert_eq!(after, None);
}
