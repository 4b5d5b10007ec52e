//! The writes of the engine, their order and their conditions.

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use oz_runtime::{Clock, Election};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mock::{Mock, status};
use crate::objects::{
    BOX, BOX_STATUS, BOXES, INNER, MAPS, OUTER, SECRETS, inner, open, outer, stored, timebox,
};
use crate::timebox::Timeboxes;

#[tokio::test]
async fn children_are_created_stage_by_stage_and_then_the_status_is_written_once() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect(Method::POST, MAPS, |call| {
        assert!(
            call.query.contains("fieldManager=oz%2Ftimebox"),
            "{}",
            call.query
        );
        assert_eq!(
            call.body["metadata"]["labels"]["oz.wizardofoz.co/owner-uid"],
            "box-uid"
        );
        (201, stored(&call.body, "outer-uid", 1_500))
    });
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(open());
    mock.run().finish().await;
}

#[tokio::test]
async fn pass_requested_by_plan_follows_at_once_with_single_status() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(open());
    let controller = Timeboxes {
        in_two_passes: true,
        ..Timeboxes::default()
    };
    let plans = Arc::clone(&controller.plans);
    mock.run_with(controller, oz_audit::LogSink, Election::Off)
        .finish()
        .await;
    assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_pass_that_failed_is_followed_by_none_at_once() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect(Method::POST, MAPS, |_| {
        (422, status(422, "Invalid", "it cannot be"))
    });
    mock.expect_status(json!({"phase": "Failed", "reason": "Rejected", "children": 0}));
    let controller = Timeboxes {
        in_two_passes: true,
        ..Timeboxes::default()
    };
    let plans = Arc::clone(&controller.plans);
    mock.run_with(controller, oz_audit::LogSink, Election::Off)
        .finish()
        .await;
    assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn unchanged_children_are_not_written() {
    let mock = Mock::default();
    let mut settled = timebox(900);
    settled["status"] = open();
    mock.list(BOXES, json!([settled]));
    // Defaults and labels of other users are no difference.
    let mut outer = outer(900);
    outer["immutable"] = json!(false);
    outer["metadata"]["labels"]["theirs"] = json!("yes");
    mock.list("/api/v1/configmaps", json!([outer]));
    mock.list("/api/v1/secrets", json!([inner(900)]));
    let engine = mock.run();
    // Another box to wait for: only its status is missing.
    let mut other = timebox(950);
    other["metadata"]["name"] = json!("b");
    other["metadata"]["uid"] = json!("other-uid");
    other["spec"]["until"] = json!("2000-01-01T00:00:00Z");
    mock.expect(
        Method::PATCH,
        &BOX_STATUS.replace("/a/", "/b/"),
        move |call| {
            assert_eq!(call.body["status"]["phase"], "Expired");
            other["status"] = call.body["status"].clone();
            (200, other)
        },
    );
    mock.watched(BOXES).await;
    let mut shown = timebox(950);
    shown["metadata"]["name"] = json!("b");
    shown["metadata"]["uid"] = json!("other-uid");
    shown["spec"]["until"] = json!("2000-01-01T00:00:00Z");
    mock.show(BOXES, "ADDED", &shown);
    engine.finish().await;
}

#[tokio::test]
async fn the_watch_showing_our_own_writes_leads_to_no_further_pass() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect(Method::POST, MAPS, |_| (201, outer(1_001)));
    mock.expect(Method::POST, SECRETS, |_| (201, inner(1_002)));
    let mut settled = timebox(1_003);
    settled["status"] = open();
    let answer = settled.clone();
    mock.expect(Method::PATCH, BOX_STATUS, |_| (200, answer));
    let engine = mock.run();
    for watched in ["/api/v1/configmaps", "/api/v1/secrets", BOXES] {
        mock.watched(watched).await;
    }
    mock.played().await;

    mock.show("/api/v1/configmaps", "ADDED", &outer(1_001));
    mock.show("/api/v1/secrets", "ADDED", &inner(1_002));
    mock.show(BOXES, "MODIFIED", &settled);
    // A change by another user arrives last, and the plan is made for it.
    let mut changed = settled.clone();
    changed["metadata"]["resourceVersion"] = json!("1004");
    changed["spec"]["content"] = json!("silver");
    mock.expect(Method::PATCH, OUTER, |call| {
        assert_eq!(
            call.body["metadata"]["uid"], "outer-uid",
            "no UID to guard it"
        );
        assert!(call.query.contains("force=true"), "{}", call.query);
        assert_eq!(call.body["data"]["content"], "silver");
        (200, stored(&call.body, "outer-uid", 1_005))
    });
    mock.show(BOXES, "MODIFIED", &changed);
    let plans = std::sync::Arc::clone(&engine.controller.plans);
    engine.finish().await;
    assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// Returns an expired box with both children.
pub(crate) fn overdue() -> Mock {
    let mock = Mock::default();
    let mut overdue = timebox(900);
    overdue["spec"]["until"] = json!("2000-01-01T00:00:00Z");
    overdue["status"] = open();
    mock.list(BOXES, json!([overdue]));
    mock.list("/api/v1/configmaps", json!([outer(900)]));
    mock.list("/api/v1/secrets", json!([inner(901)]));
    mock
}

fn deletes(call: &Value, uid: &str) {
    assert_eq!(call["preconditions"]["uid"], uid, "no UID to guard it");
    assert_eq!(call["propagationPolicy"], "Background");
}

#[tokio::test]
async fn children_are_deleted_by_uid_the_last_created_first() {
    let mock = overdue();
    mock.expect(Method::DELETE, INNER, |call| {
        deletes(&call.body, "inner-uid");
        (
            200,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
        )
    });
    mock.expect(Method::DELETE, OUTER, |call| {
        deletes(&call.body, "outer-uid");
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(json!({"phase": "Expired", "children": 0}));
    mock.run().finish().await;
}

/// A clock that is stopped until it is set.
#[derive(Clone)]
struct SetClock(Arc<Mutex<Timestamp>>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

#[tokio::test]
async fn no_stage_begins_after_the_end_that_a_slow_server_let_pass() {
    let mock = Mock::default();
    let mut ending = timebox(900);
    ending["spec"]["until"] = json!("2026-11-21T11:00:00Z");
    mock.list(BOXES, json!([ending]));
    let at = |time: &str| time.parse::<Timestamp>().expect("a time");
    let clock = SetClock(Arc::new(Mutex::new(at("2026-11-21T10:59:59.9Z"))));
    let slow = clock.clone();
    mock.expect(Method::POST, MAPS, move |_| {
        *slow.0.lock() = at("2026-11-21T11:00:00Z");
        (201, outer(1_001))
    });
    // The engine creates no Secret, which grants access, and deletes the created child at once.
    mock.expect(Method::DELETE, OUTER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(json!({"phase": "Expired", "reason": null, "children": 0}));
    mock.run_at(
        clock,
        Timeboxes::default(),
        oz_audit::LogSink,
        Election::Off,
    )
    .finish()
    .await;
}

#[tokio::test]
async fn plan_that_only_deletes_continues_on_slow_server() {
    let mock = overdue();
    let at = |time: &str| time.parse::<Timestamp>().expect("a time");
    let clock = SetClock(Arc::new(Mutex::new(at("2026-11-21T11:00:00Z"))));
    let slow = clock.clone();
    let controller = Timeboxes {
        looks_again: true,
        ..Timeboxes::default()
    };
    let plans = Arc::clone(&controller.plans);
    mock.expect(Method::DELETE, INNER, move |_| {
        *slow.0.lock() = at("2026-11-21T11:00:05Z");
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect(Method::DELETE, OUTER, move |_| {
        // The plan that knew the reason made this deletion.
        assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 1);
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(json!({"phase": "Expired", "children": 0}));
    mock.run_at(clock, controller, oz_audit::LogSink, Election::Off)
        .finish()
        .await;
}

#[tokio::test]
async fn a_name_that_belongs_to_another_object_by_now_counts_as_deleted() {
    let mock = overdue();
    mock.expect(Method::DELETE, INNER, |_| {
        (409, status(409, "Conflict", "another UID"))
    });
    mock.expect(Method::GET, INNER, |_| {
        let mut another = inner(950);
        another["metadata"]["uid"] = json!("another-uid");
        (200, another)
    });
    mock.expect(Method::DELETE, OUTER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(json!({"phase": "Expired", "children": 0}));
    mock.run().finish().await;
}

#[tokio::test]
async fn a_deletion_refused_for_another_reason_is_tried_again() {
    let mock = overdue();
    mock.expect(Method::DELETE, INNER, |_| {
        (409, status(409, "Conflict", "changed in the meantime"))
    });
    mock.expect(Method::GET, INNER, |_| (200, inner(901)));
    mock.expect_status(json!({"phase": "Failed", "reason": "Changed"}));
    mock.expect(Method::DELETE, INNER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect(Method::DELETE, OUTER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(json!({"phase": "Expired", "reason": null, "children": 0}));
    mock.run().finish().await;
}

#[tokio::test]
async fn a_child_left_by_a_crash_is_found_and_the_plan_made_anew_with_it() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    // The watch has not shown the object: the list is older.
    let taken = status(
        409,
        "AlreadyExists",
        "configmaps \"a-outer\" already exists",
    );
    mock.expect(Method::POST, MAPS, |_| (409, taken));
    mock.expect(Method::GET, OUTER, |_| (200, outer(1_500)));
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(open());
    let engine = mock.run();
    let plans = std::sync::Arc::clone(&engine.controller.plans);
    engine.finish().await;
    assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn children_are_orphans_only_when_the_api_server_says_that_their_object_is_gone() {
    let mock = Mock::default();
    // The list of boxes is older than the box, the list of children is newer.
    mock.list("/api/v1/configmaps", json!([outer(900)]));
    mock.list("/api/v1/secrets", json!([inner(901)]));
    mock.expect(Method::GET, BOX, |_| (200, timebox(899)));
    mock.expect(Method::GET, BOX, |_| {
        (404, status(404, "NotFound", "no such box"))
    });
    for path in [INNER, OUTER] {
        mock.expect(Method::DELETE, path, |_| {
            (404, status(404, "NotFound", "gone already"))
        });
    }
    mock.run().finish().await;
}

#[tokio::test]
async fn a_child_that_takes_its_time_to_end_is_live_until_the_watch_shows_it_gone() {
    let mock = overdue();
    let mut ending = inner(1_100);
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-21T11:00:00Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(1);
    let answer = ending.clone();
    mock.expect(Method::DELETE, INNER, |_| (200, answer));
    mock.expect(Method::DELETE, OUTER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    // The end is not complete: one child remains.
    mock.expect_status(json!({"children": 1}));
    let engine = mock.run();
    mock.watched("/api/v1/secrets").await;
    mock.played().await;

    mock.expect_status(json!({"phase": "Expired", "children": 0}));
    mock.show("/api/v1/secrets", "DELETED", &ending);
    engine.finish().await;
}

#[tokio::test]
async fn an_object_that_deletes_itself_goes_by_uid_and_gets_no_status() {
    let mock = Mock::default();
    let mut vanishing = timebox(900);
    vanishing["spec"]["until"] = json!("2000-01-01T00:00:00Z");
    vanishing["spec"]["vanish"] = json!(true);
    mock.list(BOXES, json!([vanishing]));
    mock.expect(Method::DELETE, BOX, |call| {
        deletes(&call.body, "box-uid");
        (
            200,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
        )
    });
    mock.run().finish().await;
}

#[tokio::test]
async fn owner_is_added_to_existing_owners_only_if_missing() {
    let mock = Mock::default();
    let mut owned = timebox(900);
    owned["spec"]["ownedBy"] = json!("owner-uid");
    mock.list(BOXES, json!([owned]));
    let mut answer = owned.clone();
    mock.expect(Method::PATCH, BOX, move |call| {
        let owners = call.body["metadata"]["ownerReferences"].clone();
        assert_eq!(owners[0]["uid"], "owner-uid");
        assert_eq!(
            call.body["metadata"]["uid"], "box-uid",
            "no UID to guard it"
        );
        assert!(call.body.get("spec").is_none(), "it claims the spec");
        answer["metadata"]["ownerReferences"] = owners;
        answer["metadata"]["resourceVersion"] = json!("1400");
        (200, answer)
    });
    // The first pass after the next failure finds that the owner is set.
    mock.expect(Method::POST, MAPS, |_| {
        (503, status(503, "ServiceUnavailable", "busy"))
    });
    mock.expect(Method::PATCH, BOX_STATUS, |_| {
        (503, status(503, "ServiceUnavailable", "busy"))
    });
    mock.expect(Method::POST, MAPS, |_| (201, outer(1_500)));
    mock.expect(Method::POST, SECRETS, |_| (201, inner(1_501)));
    mock.expect(Method::PATCH, BOX_STATUS, |_| {
        (503, status(503, "ServiceUnavailable", "busy"))
    });
    mock.run().finish().await;
}

#[tokio::test]
async fn a_value_that_the_api_server_writes_differently_is_not_sent_again() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    let rewritten = |label: &str, content: &str, version: u64| {
        let mut outer = outer(version);
        outer["data"]["content"] = json!(content);
        outer["metadata"]["labels"]["theirs"] = json!(label);
        outer["metadata"]["generation"] = json!(1);
        outer
    };
    let created = rewritten("no", "GOLD", 1_001);
    mock.expect(Method::POST, MAPS, |_| (201, created));
    mock.expect(Method::POST, SECRETS, |_| (201, inner(1_002)));
    mock.expect_status(open());
    let engine = mock.run();
    mock.watched("/api/v1/configmaps").await;
    mock.played().await;

    // A label of another user causes a pass, which changes nothing; another content is drift.
    let labelled = rewritten("yes", "GOLD", 2_001);
    mock.show("/api/v1/configmaps", "MODIFIED", &labelled);
    let mut drifted = rewritten("yes", "LEAD", 2_002);
    drifted["metadata"]["generation"] = json!(2);
    mock.expect(Method::PATCH, OUTER, |call| {
        assert_eq!(call.body["data"]["content"], "gold");
        (200, outer(2_003))
    });
    mock.show("/api/v1/configmaps", "MODIFIED", &drifted);
    engine.finish().await;
}
