//! Parents that do not converge.

use jiff::{SignedDuration, Timestamp};
use oz_api::composite::Method;
use oz_core::controller::{Decision, Verdict};
use serde_json::{Value, json};

use super::world::{World, map, timestamp};
use crate::Question;
use crate::settling::{Change, Passes};

const PARENT: &str = "parent";

fn after(millis: i64) -> Timestamp {
    timestamp(0) + SignedDuration::from_millis(millis)
}

/// Returns the change of a pass over a parent, with this value for its child `one`.
fn change(world: &mut World, value: &str) -> Option<Change> {
    world.answers(&json!({"children": [map("one", value)], "status": {}}));
    world.facts.slowed = None;
    let verdict = world.verdict(timestamp(0));
    world.facts.slowed = Some(None);
    match verdict {
        Verdict::Need {
            question: Question::Slowed(change),
            ..
        } => Some(change),
        Verdict::Need { question, .. } => panic!("{question:?}"),
        Verdict::Decided(_) => None,
    }
}

/// Returns a world with a parent and its child.
fn settled() -> World {
    let mut world = World::new(Method::InPlace);
    assert_eq!(
        change(&mut world, "0"),
        None,
        "what is only added is no change"
    );
    world.pass(timestamp(0));
    assert_eq!(change(&mut world, "0"), None);
    world
}

fn failure(decision: &Decision<crate::Pass>) -> (&str, &str) {
    let failure = decision.plan.obstacle.as_ref().unwrap();
    (failure.reason, &failure.message)
}

#[test]
fn five_passes_in_a_row_may_change_something_and_each_further_one_waits_twice_as_long() {
    let mut world = settled();
    let mut passes = Passes::default();
    for pass in 0..5 {
        let change = change(&mut world, &format!("{pass}+")).unwrap();
        assert_eq!(passes.would(after(pass * 10), PARENT, change), None);
    }
    let mut now = after(40);
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512] {
        let next = now + SignedDuration::from_secs(seconds);
        let early = next - SignedDuration::from_nanos(1);
        let again = |passes: &mut Passes, world: &mut World, now| {
            let change = change(world, &now_text(now)).unwrap();
            passes.would(now, PARENT, change)
        };
        assert_eq!(again(&mut passes, &mut world, early), Some(next));
        assert_eq!(again(&mut passes, &mut world, next), None, "{seconds}");
        now = next;
    }
    // Other parents are not delayed, and a parent without changes is forgotten.
    let other = change(&mut world, "x").unwrap();
    assert_eq!(passes.would(now, "other", other.clone()), None);
    let rested = now + SignedDuration::from_secs(512 + 60);
    assert_eq!(passes.would(rested, PARENT, other.clone()), None);
    assert_eq!(passes.would(rested, PARENT, other), None);
}

fn now_text(now: Timestamp) -> String {
    now.to_string()
}

#[test]
fn remembered_passes_are_bounded() {
    let mut world = settled();
    let mut passes = Passes::default();
    let change = change(&mut world, "x").unwrap();
    for pass in 0..5 {
        assert_eq!(passes.would(after(pass), PARENT, change.clone()), None);
    }
    assert!(passes.would(after(5), PARENT, change.clone()).is_some());
    for other in 0..2_000 {
        let other = format!("other-{other}");
        assert_eq!(passes.would(after(6), &other, change.clone()), None);
    }
    assert_eq!(passes.would(after(7), PARENT, change), None, "counted anew");
}

/// Checks whether a parent is delayed by its tenth pass, with these changes before each pass.
fn is_slowed(millis: i64, mut before: impl FnMut(&mut World, i64)) -> bool {
    let mut world = settled();
    let mut passes = Passes::default();
    let mut would = (0..10).map(|pass| {
        before(&mut world, pass);
        let change = change(&mut world, &format!("{pass}+")).unwrap();
        passes.would(after(pass * millis), PARENT, change)
    });
    would.any(|wait| wait.is_some())
}

#[test]
fn a_pass_with_a_cause_begins_anew() {
    assert!(is_slowed(10, |_, _| {}));
    assert!(is_slowed(10, |world, _| {
        // A change of a child by a pass is not a cause.
        let child = &mut world.live[0].object;
        child.metadata.resource_version = Some("7".to_owned());
    }));
    assert!(!is_slowed(10, |world, pass| {
        world.parent.metadata.generation = Some(pass + 4);
    }));
    assert!(!is_slowed(10, |world, pass| {
        let labels = world.parent.metadata.labels.get_or_insert_default();
        labels.insert("pass".to_owned(), pass.to_string());
    }));
    assert!(!is_slowed(10, |world, pass| {
        world.live[0].object.data["status"] = json!({"ready": pass});
    }));
    // A replaced child has another status.
    assert!(is_slowed(10, |world, pass| {
        world.live[0].object.metadata.uid = Some(format!("one-{pass}"));
        world.live[0].object.data["status"] = json!({"ready": pass});
    }));
    assert!(!is_slowed(10, |world, pass| {
        world.parent.data["spec"] = json!({"until": after(pass + 1).to_string()});
    }));
    assert!(!is_slowed(60_000, |_, _| {}), "these are in no row");
}

#[test]
fn resync_requested_by_function_is_limited_to_once_per_second() {
    let is_slowed = |asked: f64, millis: i64| {
        let mut world = settled();
        let mut passes = Passes::default();
        let mut would = (0..10).map(|pass| {
            world.answers(&json!({
                "children": [map("one", &format!("{pass}+"))], "resyncAfterSeconds": asked,
            }));
            world.facts.slowed = None;
            let Verdict::Need {
                question: Question::Slowed(change),
                ..
            } = world.verdict(timestamp(0))
            else {
                panic!("it changes something");
            };
            passes.would(after(pass * millis), PARENT, change)
        });
        would.any(|wait| wait.is_some())
    };
    assert!(!is_slowed(5.0, 5_000));
    assert!(is_slowed(5.0, 4_999));
    assert!(!is_slowed(0.1, 1_000));
    assert!(is_slowed(0.1, 100));
}

#[test]
fn a_status_that_is_another_one_each_time_counts_as_well() {
    let mut world = settled();
    world.parent.data["status"] = json!({"observedGeneration": 3, "seen": 1});
    let asks = |world: &mut World, status: Value| {
        world.answers(&json!({"children": [map("one", "0")], "status": status}));
        world.facts.slowed = None;
        world.verdict(timestamp(0)).question()
    };
    assert_eq!(asks(&mut world, json!({"seen": 1})), None);
    let question = asks(&mut world, json!({"seen": 2}));
    assert!(
        matches!(question, Some(Question::Slowed(_))),
        "{question:?}"
    );
}

#[test]
fn a_parent_that_is_slowed_is_left_as_it_is_until_then_but_for_ends() {
    let mut world = settled();
    world.answers(&json!({"children": [map("one", "1"), map("two", "1")], "status": {"x": 1}}));
    world.facts.slowed = Some(Some(timestamp(8)));
    let decision = world.decide(timestamp(0));
    assert_eq!(decision.plan.steps().count(), 0);
    assert_eq!(decision.plan.wake, Some(timestamp(8)));
    assert_eq!(decision.state.status, None);
    let (reason, message) = failure(&decision);
    assert_eq!(reason, "NotConverging");
    assert!(message.contains("last ConfigMap dev/one"), "{message}");

    let mut ending = World::new(Method::InPlace);
    let child = json!({"children": [map("one", "1")]});
    ending.answers_ahead(&child, &[(timestamp(5), json!({"children": []}))]);
    ending.pass(timestamp(0));
    ending.facts.slowed = Some(Some(timestamp(60)));
    assert_eq!(ending.pass(timestamp(5)), ["delete one"]);
}
