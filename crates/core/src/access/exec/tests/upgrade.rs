//! What an earlier release granted, this one honours to its end: it opens the sealed decision,
//! finds nothing drifted and writes nothing. A fixture is never written again; a release that
//! changes what it grants adds one: the request, the Role and the RoleBinding of a settled world.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::Value;

use super::world::*;
use crate::controller::{Child, Live};

const RELEASES: &[&str] = &[include_str!("fixtures/granted-by-0.1.0.json")];

/// What a release left in the cluster for alice's request.
fn left_by(fixture: &str) -> World {
    let left: Value = serde_json::from_str(fixture).unwrap();
    let live = |child: Child| Live {
        resource: child.resource,
        object: child.object,
    };
    let role: Role = serde_json::from_value(left["role"].clone()).unwrap();
    let binding: RoleBinding = serde_json::from_value(left["roleBinding"].clone()).unwrap();
    let mut world = World::new();
    world.live = vec![live(Child::new(&role)), live(Child::new(&binding))];
    world.request = serde_json::from_value(left["request"].clone()).unwrap();
    world
}

#[test]
fn a_grant_of_an_earlier_release_goes_on_untouched_and_ends_in_time() {
    for fixture in RELEASES {
        let mut world = left_by(fixture);
        let before = world.status();
        let plan = world.plan(at(60));
        assert_eq!(plan.steps().count(), 0, "{plan:?}");
        assert_eq!(plan.wake, Some(at(300)));
        world.pass(at(60));
        assert_eq!(world.status(), before);
        world.settle(at(300));
        assert_eq!(world.live, []);
        assert_eq!(world.actions(), ["AccessExpired"]);
    }
}
