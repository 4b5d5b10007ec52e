//! When a binding is in effect: inside its window, at both ends to the nanosecond.

use jiff::SignedDuration;
use oz_api::Phase;
use proptest::prelude::*;

use super::world::*;
use crate::controller::Step;

/// Returns the effect of a plan on the binding.
fn does(world: &World<oz_api::TransientRoleBinding>, seconds: i64, nanos: i64) -> &'static str {
    let plan = world.plan(timestamp(seconds) + SignedDuration::from_nanos(nanos));
    let mut does = "nothing";
    for step in plan.steps() {
        match step {
            Step::Apply(_) => does = "bind",
            Step::Delete(_) => does = "unbind",
            _ => {}
        }
    }
    does
}

#[test]
fn both_ends_of_the_window_hold_to_the_nanosecond() {
    let waiting = namespaced(|_| {});
    let mut active = waiting.clone();
    active.settle(timestamp(60));
    for (seconds, nanos, unbound, bound) in [
        (0, 0, "nothing", "nothing"),
        (60, -1, "nothing", "nothing"),
        (60, 0, "bind", "nothing"),
        (60, 1, "bind", "nothing"),
        (360, -1, "bind", "nothing"),
        (360, 0, "nothing", "unbind"),
        (360, 1, "nothing", "unbind"),
        (1_000_000, 0, "nothing", "unbind"),
    ] {
        assert_eq!(
            does(&waiting, seconds, nanos),
            unbound,
            "{seconds} s {nanos} ns, unbound"
        );
        assert_eq!(
            does(&active, seconds, nanos),
            bound,
            "{seconds} s {nanos} ns, bound"
        );
    }
}

#[test]
fn binding_wakes_at_recount_start_and_expiry() {
    let mut world = namespaced(|_| {});
    for (now, wake) in [
        (timestamp(0), Some(timestamp(10))),
        (timestamp(10) - NANOSECOND, Some(timestamp(10))),
        (timestamp(10), Some(timestamp(60))),
        (timestamp(60) - NANOSECOND, Some(timestamp(60))),
        (timestamp(60), Some(timestamp(360))),
        (timestamp(200), Some(timestamp(360))),
        (timestamp(360) - NANOSECOND, Some(timestamp(360))),
        (timestamp(360), None),
        (timestamp(400), None),
    ] {
        assert_eq!(world.pass(now).wake, wake, "{now}");
    }
    // Only what was about to be made was looked up.
    assert_eq!(world.looks, 1);
}

#[test]
fn activation_and_revocation_take_two_writes_each() {
    let mut world = namespaced(|_| {});
    world.settle(timestamp(1));
    assert_eq!((world.writes, world.status().phase), (1, Phase::Pending));
    world.settle(timestamp(60));
    assert_eq!((world.writes, world.status().phase), (3, Phase::Active));
    world.settle(timestamp(200));
    assert_eq!(world.writes, 3);
    world.settle(timestamp(360));
    assert_eq!((world.writes, world.status().phase), (5, Phase::Expired));
    world.settle(timestamp(10_000));
    assert_eq!(world.writes, 5);
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
}

#[test]
fn status_of_binding_shows_current_and_next_transition() {
    let mut world = namespaced(|_| {});
    let status = world.settle(timestamp(1));
    assert_eq!(status.next_transition_time, Some(timestamp(60)));
    assert_eq!(status.requester.as_deref(), Some("bob"));
    assert_eq!(world.condition("Ready"), "False (NotYetValid)");
    assert_eq!(world.condition("Effective"), "False (NotYetValid)");

    let status = world.settle(timestamp(61));
    assert_eq!(status.activated_at, Some(timestamp(61)));
    assert_eq!(
        (status.expires_at, status.next_transition_time),
        (Some(timestamp(360)), Some(timestamp(360)))
    );
    assert_eq!(status.binding_name.as_deref(), Some("on-call"));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(world.condition("Ready"), "True (Active)");
    assert_eq!(world.condition("Effective"), "True (Active)");

    let status = world.settle(timestamp(360));
    assert_eq!(
        (status.expires_at, status.next_transition_time),
        (Some(timestamp(360)), None)
    );
    assert_eq!(world.condition("Effective"), "False (Expired)");
}

#[test]
fn a_duration_counts_from_the_activation() {
    let mut world = lasting("5m");
    let status = world.settle(timestamp(40));
    assert_eq!(status.expires_at, Some(timestamp(340)));
    // The decision is the binding's: another look moves nothing.
    world.object.status = None;
    assert_eq!(
        world.settle(timestamp(100)).expires_at,
        Some(timestamp(340))
    );
    assert_eq!(world.settle(timestamp(340)).phase, Phase::Expired);
}

#[test]
fn a_duration_from_a_later_instant_begins_there() {
    let mut world = namespaced(|object| {
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("validUntil");
        spec.insert("duration".into(), "5m".into());
    });
    assert_eq!(world.settle(timestamp(0)).phase, Phase::Pending);
    assert_eq!(world.settle(timestamp(60)).expires_at, Some(timestamp(360)));
}

#[test]
fn missed_window_expires_without_binding() {
    let mut world = namespaced(|_| {});
    assert_eq!(world.settle(timestamp(360)).phase, Phase::Expired);
    assert_eq!(world.condition("Ready"), "False (NeverActive)");
    assert_eq!((world.looks, world.bound().len()), (0, 0));

    // A duration waits for a day at most.
    let mut world = lasting("5m");
    world.lookup.role = Ok(None);
    assert_eq!(world.settle(timestamp(24 * 3600 - 1)).phase, Phase::Pending);
    assert_eq!(world.settle(timestamp(24 * 3600)).phase, Phase::Expired);
}

#[test]
fn expired_binding_stays_expired_at_any_clock() {
    for mut world in [namespaced(|_| {}), lasting("5m")] {
        world.settle(timestamp(61));
        assert_eq!(world.settle(timestamp(1_000)).phase, Phase::Expired);
        for now in [
            timestamp(61),
            timestamp(62),
            timestamp(0),
            timestamp(10_000),
        ] {
            assert_eq!(world.settle(now).phase, Phase::Expired);
            assert_eq!(world.bound().len(), 0);
        }
    }
}

proptest! {
    /// For any window and any passes: the binding exists only inside the window, an ended object stays ended, and the
    /// next pass is at the next end.
    #[test]
    fn nothing_is_bound_outside_the_window(
        from in proptest::option::of(-50_i64..500),
        until in -50_i64..1000,
        duration in proptest::option::of(1_i64..1000),
        mut looks in proptest::collection::vec(0_i64..1500, 1..12),
        status_fails in any::<bool>(),
    ) {
        let mut world = namespaced(|object| {
            let spec = object["spec"].as_object_mut().unwrap();
            spec.remove("validFrom");
            if let Some(from) = from {
                spec.insert("validFrom".into(), timestamp(from).to_string().into());
            }
            if let Some(duration) = duration {
                spec.remove("validUntil");
                spec.insert("duration".into(), format!("{duration}s").into());
            } else {
                spec.insert("validUntil".into(), timestamp(until).to_string().into());
            }
        });
        world.status_fails = status_fails;
        looks.sort_unstable();
        let mut activated = None;
        let mut over = false;
        for look in looks {
            let plan = world.pass(timestamp(look));
            let bound = !world.bound().is_empty();
            if bound && activated.is_none() {
                activated = Some(look);
            }
            let opens = from.unwrap_or(0);
            let ends = match (duration, activated) {
                (Some(duration), Some(activated)) => Some(activated + duration),
                (Some(_), None) => None,
                (None, _) => Some(until),
            };
            prop_assert!(!bound || (look >= opens && ends.is_none_or(|ends| look < ends)));
            prop_assert!(!(over && bound), "bound again at {}", look);
            over |= ends.is_some_and(|ends| look >= ends);
            if bound {
                prop_assert_eq!(plan.wake, ends.map(timestamp));
            }
        }
    }
}
