//! Objects that no watch shows, since a user removed the marks: a grant has ended only once its objects are gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use oz_api::{Phase, conditions, labels};
use serde_json::json;

use super::world::*;
use crate::access::leftover::{Finding, Sweep};
use crate::access::testing::UID;
use crate::controller::{Controller, Live, Step};

fn granted() -> World {
    let mut world = World::new();
    world.settle(timestamp(1));
    world
}

/// The ways to hide an object.
pub(super) const WAYS: [fn(&mut ObjectMeta); 4] = [
    |metadata| metadata.labels = None,
    |metadata| {
        metadata.labels = None;
        metadata.owner_references = None;
    },
    |metadata| {
        metadata.labels = None;
        metadata.annotations = None;
        metadata.owner_references = None;
    },
    |metadata| {
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(labels::OWNER_UID.to_owned(), "another".to_owned());
    },
];

/// Returns a RoleBinding of mallory to the Role of this name.
pub(super) fn binding(name: &str, role: &str) -> Live {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }))
    .unwrap();
    let resource = granted().live.remove(1).resource;
    assert_eq!(resource.kind, "RoleBinding");
    Live { resource, object }
}

#[test]
fn hidden_binding_is_deleted_before_status_reports_end() {
    for hide in WAYS {
        for kinds in [&["RoleBinding"][..], &["Role"], &["RoleBinding", "Role"]] {
            for (now, phase) in [
                (timestamp(10), Phase::Revoked),
                (timestamp(300), Phase::Expired),
            ] {
                let mut world = granted();
                for kind in kinds {
                    world.hide(kind, hide);
                }
                world.pass(now);
                let status = world.status();
                assert_eq!(status.phase, phase, "{kinds:?}");
                let gives = |live: &Live| live.resource.kind == "RoleBinding";
                assert!(!world.live.iter().any(gives), "{kinds:?}");
                assert!(!world.hidden.iter().any(gives), "{kinds:?}");
                world.settle(now);
                assert!(
                    world.live.is_empty() && world.hidden.is_empty(),
                    "{kinds:?}"
                );
            }
        }
    }
}

#[test]
fn a_role_that_is_hidden_between_the_status_and_its_own_end_goes_as_well() {
    let mut world = granted();
    world.pass(timestamp(300));
    assert_eq!(world.status().phase, Phase::Expired);
    world.hide("Role", |metadata| metadata.labels = None);
    world.settle(timestamp(301));
    assert!(world.live.is_empty() && world.hidden.is_empty());
    // Long after the end, no plan looks for the objects.
    let looks = |step: &Step| matches!(step, Step::Look(_));
    assert!(!world.plan(timestamp(1_000)).steps().any(looks));
}

#[test]
fn foreign_binding_with_name_of_grant_is_not_touched() {
    let mut world = granted();
    let name = world.live[1].key().name.unwrap();
    world.remove("RoleBinding");
    world.hidden.push(binding(&name, "view"));
    world.settle(timestamp(10));
    assert_eq!(world.status().phase, Phase::Revoked);
    let left: Vec<_> = world.live.iter().map(|live| live.reference().uid).collect();
    assert_eq!(left, [Some(format!("uid-of-{name}"))]);
}

#[test]
fn grant_waits_while_foreign_binding_refers_to_role() {
    let mut world = World::new();
    let name = world
        .plan(timestamp(1))
        .steps()
        .find_map(|step| match step {
            Step::Apply(child) => child.key().name,
            _ => None,
        });
    let name = name.unwrap();
    for waiting in ["innocent", &name] {
        world.hidden.push(binding(waiting, &name));
        world.settle(timestamp(1));
        assert_eq!(world.status().phase, Phase::Pending);
        let said = world.status().conditions;
        let said = conditions::find(&said, conditions::ACCESS_RESOURCES_CREATED).unwrap();
        assert_eq!(said.reason, "NameConflict");
        assert!(
            said.message
                .contains(&format!("RoleBinding {waiting} binds"))
        );
        assert!(world.kinds().iter().all(|kind| *kind != "Role"));
        world.live.clear();
    }
    assert_eq!(world.actions(), ["ForeignAccess", "ForeignAccess"]);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
}

#[test]
fn foreign_binding_to_role_before_grant_ends_role_at_once() {
    let mut world = World::new();
    // The process dies after the Role.
    world.writes_left = 1;
    world.pass(timestamp(1));
    assert_eq!(world.kinds(), ["Role"]);
    let name = world.live[0].key().name.unwrap();
    world.writes_left = usize::MAX;
    world.hidden.push(binding("innocent", &name));
    let first = world.clone().pass(timestamp(1));
    assert!(
        matches!(&first.stages[0][..], [Step::Delete(gone)] if gone.name == Some(name.clone()))
    );
    world.settle(timestamp(1));
    assert_eq!(world.kinds(), ["RoleBinding"]);
    assert_eq!(world.status().phase, Phase::Pending);
}

#[test]
fn hidden_objects_of_deleted_request_are_found_by_name() {
    for hide in WAYS {
        let mut world = granted();
        let request = world.request.clone();
        world.hide("RoleBinding", hide);
        world.hide("Role", hide);
        for _ in 0..3 {
            let plan = world
                .controller
                .orphaned(timestamp(10), Some(&request), &world.live);
            world.carry_out(&plan);
        }
        assert!(world.live.is_empty() && world.hidden.is_empty());
        assert_eq!(world.actions().last().unwrap(), "AccessRevoked");
    }
    let world = World::new();
    let request = &world.request;
    let plan = world.controller.orphaned(timestamp(10), Some(request), &[]);
    assert!(plan.steps().all(|step| matches!(step, Step::Look(_))));
}

#[test]
fn sweep_distinguishes_objects_of_oz_from_lookalikes() {
    let world = granted();
    let (keys, now) = (keys(), timestamp(10));
    let (role, bound) = (world.live[0].clone(), world.live[1].clone());
    let name = role.key().name.unwrap();
    let mut sweep = Sweep::new(&keys, now);
    // The controllers handle the objects that the watch shows.
    assert_eq!(sweep.role(&role), Finding::Nothing);
    assert_eq!(sweep.binding(&bound), Finding::Nothing);
    for hide in [WAYS[0], WAYS[1], WAYS[3]] {
        for live in [&role, &bound] {
            let mut live = live.clone();
            hide(&mut live.object.metadata);
            let finding = match live.resource.kind.as_str() {
                "Role" => sweep.role(&live),
                _ => sweep.binding(&live),
            };
            let Finding::Hidden(hidden) = finding else {
                panic!("{finding:?}");
            };
            assert_eq!(hidden.owner, UID);
            assert_eq!(hidden.mark, "ExecAccessRequest");
            assert_eq!(hidden.target, live.reference());
        }
    }
    let says = |finding: Finding, what: &str| match finding {
        Finding::Foreign(why) => assert!(why.contains(what), "{why}"),
        other => panic!("{other:?}"),
    };
    says(
        sweep.binding(&binding("innocent", &name)),
        "of oz, and was not created by oz",
    );
    let dangling = binding("innocent", "gone-01234567");
    says(sweep.binding(&dangling), "does not exist");
    let mut copy = role.clone();
    copy.object.metadata.name = Some("copy".to_owned());
    says(sweep.role(&copy), "and differs from it");
    // A Role of another author with such a name, and its binding.
    let mut other = role.clone();
    (
        other.object.metadata.annotations,
        other.object.metadata.labels,
    ) = (None, None);
    other.object.metadata.name = Some("other-01234567".to_owned());
    assert_eq!(sweep.role(&other), Finding::Nothing);
    let theirs = binding("theirs", "other-01234567");
    assert_eq!(sweep.binding(&theirs), Finding::Nothing);
    assert_eq!(sweep.binding(&binding("a", "view")), Finding::Nothing);
}

#[test]
fn role_with_a_decision_of_an_earlier_release_and_without_labels_is_reported() {
    let world = granted();
    let keys = crate::access::testing::keys();
    for mut live in world.live {
        let kind = live.resource.kind.clone();
        let metadata = &mut live.object.metadata;
        let annotations = metadata.annotations.get_or_insert_default();
        let retired = r#"{"mac":"q83v"}"#.to_owned();
        annotations.insert(labels::GRANT.to_owned(), retired);
        let mut sweep = Sweep::new(&keys, timestamp(10));
        let mut find = |live: &Live| match live.resource.kind.as_str() {
            "Role" => sweep.role(live),
            _ => sweep.binding(live),
        };
        // An object with its labels is ended with its request.
        assert!(!matches!(find(&live), Finding::Hidden(_)), "{kind}");
        live.object.metadata.labels = None;
        let found = find(&live);
        let Finding::Foreign(what) = found else {
            panic!("{kind}: {found:?}");
        };
        assert!(what.contains("earlier release"), "{what}");
    }
}
