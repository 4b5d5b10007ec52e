//! What a request says that is over, and how long it is kept.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::world::*;
use crate::access::kind::KeepFinished;
use crate::api::Phase;
use crate::conditions;
use crate::controller::Failure;
use crate::sessions;

fn granted() -> World {
    let mut world = World::new();
    world.settle(at(1));
    world
}

/// `kubectl wait` reads conditions, and not the phase.
#[test]
fn no_condition_says_of_what_has_ended_that_it_can_be_used() {
    let told = |world: &World| {
        let status = world.status();
        [
            conditions::ACCESS_RESOURCES_CREATED,
            conditions::ACCESS_RESOURCES_READY,
        ]
        .map(|type_| {
            let one = conditions::find(&status.conditions, type_).unwrap();
            format!("{} {}", one.status, one.reason)
        })
    };
    let deleted: Change = |world| world.request.metadata.deletion_timestamp = Some(Time(at(10)));
    let changed: Change = |world| world.remove("Role");
    for (event, second, expected) in [
        ((|_| ()) as Change, 300, "False Expired"),
        (deleted, 10, "False Revoked"),
        (changed, 10, "False Revoked"),
    ] {
        let mut world = granted();
        assert_eq!(told(&world), ["True Success", "True Success"]);
        event(&mut world);
        // What cannot be put on record is not over yet, and cannot be used either.
        world.records_fail = true;
        world.settle(at(second));
        assert_eq!(told(&world), [expected, expected]);
        world.records_fail = false;
        world.settle(at(second + 1));
        assert!(world.status().phase.is_terminal());
        assert_eq!(told(&world), [expected, expected]);
    }

    let mut slow = granted();
    slow.sessions_fail = Some(Failure::transient(sessions::NOT_ENDED, "no answer"));
    slow.pass(at(300));
    assert_eq!(told(&slow), ["False Expired", "False Ending"]);
    slow.sessions_fail = None;
    slow.settle(at(301));
    assert_eq!(told(&slow), ["False Expired", "False Expired"]);

    // Why nothing was ever granted stays.
    let mut never = World::new();
    never.workload = Err(Failure::transient("NotFound", "no such StatefulSet"));
    never.settle(at(1));
    let status = never.settle(at(300));
    let created = conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_CREATED);
    assert_eq!(created.unwrap().reason, "Failure");
}

/// Whoever applies the manifest again asks again; whoever was refused reads why.
#[test]
fn a_request_whose_record_is_in_the_trail_may_go_before_one_that_nothing_else_tells_of() {
    let keeps = |mut world: World| {
        world.controller.keep_finished = KeepFinished {
            ended: SignedDuration::from_mins(1),
            others: SignedDuration::from_hours(1),
        };
        world.settle(at(1));
        world
    };
    let mut expired = keeps(World::new());
    expired.settle(at(300));
    assert_eq!(expired.plan(at(301)).wake, Some(at(360)));
    expired.pass(at(360));
    assert!(expired.deleted);

    let mut revoked = keeps(World::new());
    revoked.remove("Role");
    revoked.settle(at(10));
    assert_eq!(revoked.plan(at(11)).wake, Some(at(70)));

    let mut denied = World::new();
    denied.config().allowed_groups = vec!["nobody".into()];
    let mut denied = keeps(denied);
    assert_eq!(denied.status().phase, Phase::Denied);
    assert_eq!(denied.plan(at(2)).wake, Some(at(3601)));

    let mut never = World::new();
    never.template = None;
    let mut never = keeps(never);
    assert_eq!(never.settle(at(300)).phase, Phase::Expired);
    assert_eq!(never.plan(at(301)).wake, Some(at(3900)));
    denied.pass(at(61));
    never.pass(at(361));
    assert!(!denied.deleted && !never.deleted);
}
