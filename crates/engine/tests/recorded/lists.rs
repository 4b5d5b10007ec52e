//! A kind that cannot be listed delays no end that follows from the available lists, and no other step
//! is carried out without its list.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use oz_audit::LogSink;
use oz_engine::Engine;
use oz_runtime::{Election, Health, Runtime, Selection, Store, SystemClock, guarded_store};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::mock::{Mock, status};
use crate::objects::{BOX, BOXES, INNER, OUTER, inner, outer, timebox};
use crate::running::Running;
use crate::timebox::{Timeboxes, UNTIL};

const ALL_MAPS: &str = "/api/v1/configmaps";
const ALL_SECRETS: &str = "/api/v1/secrets";
const PAST: &str = "2000-01-01T00:00:00Z";
const FUTURE: &str = "2200-01-01T00:00:00Z";

/// Returns the outer child of the box, with the expiry of the box.
fn outer_until(until: &str) -> Value {
    let mut outer = outer(900);
    outer["metadata"]["annotations"][UNTIL] = json!(until);
    outer
}

fn lasting(until: &str) -> Value {
    let mut timebox = timebox(900);
    timebox["spec"]["until"] = json!(until);
    timebox
}

fn expect_deletion(mock: &Mock, path: &str) {
    mock.expect(Method::DELETE, path, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
}

/// Waits until the readiness of the engine names this condition.
async fn said(running: &Running, what: &str) {
    let said = async {
        while !running.readiness.waiting_for().join(" ").contains(what) {
            tokio::task::yield_now().await;
        }
    };
    let said = tokio::time::timeout(Duration::from_secs(20), said).await;
    assert!(said.is_ok(), "{:?}", running.readiness.waiting_for());
}

#[tokio::test]
async fn objects_that_cannot_be_listed_end_by_what_their_children_carry() {
    for code in [403, 404, 500] {
        let mock = Mock::default();
        mock.refused(BOXES, code);
        mock.list(ALL_MAPS, json!([outer_until(PAST)]));
        mock.list(ALL_SECRETS, json!([inner(901)]));
        expect_deletion(&mock, INNER);
        expect_deletion(&mock, OUTER);
        mock.run().finish().await;
    }
}

#[tokio::test]
async fn unexpired_children_are_kept_while_parent_is_unknown() {
    let mock = Mock::default();
    mock.refused(BOXES, 500);
    mock.list(BOXES, json!([lasting(FUTURE)]));
    mock.list(ALL_MAPS, json!([outer_until(FUTURE)]));
    mock.list(ALL_SECRETS, json!([inner(901)]));
    // A user may have deleted the box.
    mock.read(BOX, 500);
    let running = mock.run();
    said(&running, "Timebox list (").await;
    mock.watched(ALL_MAPS).await;
    mock.expect_status(json!({"phase": "Open", "reason": null, "children": 2}));
    // Long enough for an engine that would end the box without this information.
    mock.asked(BOX).await;
    mock.listed(BOXES);
    running.finish().await;
}

#[tokio::test]
async fn an_object_that_is_gone_ends_although_no_list_says_so() {
    let mock = Mock::default();
    mock.refused(BOXES, 500);
    mock.list(ALL_MAPS, json!([outer_until(FUTURE)]));
    mock.list(ALL_SECRETS, json!([inner(901)]));
    mock.expect(Method::GET, BOX, |_| (404, status(404, "NotFound", "gone")));
    expect_deletion(&mock, INNER);
    expect_deletion(&mock, OUTER);
    mock.run().finish().await;
}

#[tokio::test]
async fn children_of_one_kind_that_cannot_be_listed_keep_no_end_waiting() {
    let mock = Mock::default();
    mock.list(BOXES, json!([lasting(PAST)]));
    mock.list(ALL_MAPS, json!([outer(900)]));
    mock.refused(ALL_SECRETS, 403);
    expect_deletion(&mock, OUTER);
    mock.expect_status(json!({"phase": "Expired", "reason": null, "children": 0}));
    mock.run().finish().await;
}

/// Returns a box with this expiry and all its children, and an API server that returns no list of
/// another kind.
fn without_needs(until: &str) -> Mock {
    let mock = Mock::default();
    mock.list(BOXES, json!([lasting(until)]));
    mock.list(ALL_MAPS, json!([outer(900)]));
    mock.list(ALL_SECRETS, json!([inner(901)]));
    mock.refused(&format!("{ALL_MAPS}?need"), 500);
    expect_deletion(&mock, INNER);
    expect_deletion(&mock, OUTER);
    mock.expect_status(json!({"phase": "Expired", "reason": null, "children": 0}));
    mock
}

#[tokio::test(start_paused = true)]
async fn expired_object_ends_at_start_without_waiting_for_other_lists() {
    let began = Instant::now();
    without_needs(PAST).run().finish().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn object_expiring_after_start_ends_without_waiting_for_other_lists() {
    let began = Instant::now();
    let clock = move || Timestamp::UNIX_EPOCH + began.elapsed();
    let running = without_needs("1970-01-01T00:00:03Z").run_at(
        clock,
        Timeboxes::default(),
        LogSink,
        Election::Off,
    );
    running.finish().await;
    let took = began.elapsed();
    let soon = Duration::from_secs(3)..Duration::from_secs(6);
    assert!(soon.contains(&took), "{took:?}");
}

#[tokio::test]
async fn without_the_children_of_one_kind_nothing_else_is_decided_until_they_are_listed() {
    let mock = Mock::default();
    mock.list(BOXES, json!([lasting(FUTURE)]));
    mock.list(ALL_MAPS, json!([outer(900)]));
    mock.refused(ALL_SECRETS, 500);
    let controller = Timeboxes::default();
    let plans = controller.plans.clone();
    let running = mock.run_engine(
        Engine::new(Runtime::new("oz", mock.client(), SystemClock)),
        controller,
    );
    said(&running, "Secret list").await;
    // The engine does not know that the inner child is missing.
    mock.list(ALL_SECRETS, json!([inner(901)]));
    assert_eq!(plans.load(std::sync::atomic::Ordering::Relaxed), 0);
    mock.expect_status(json!({"phase": "Open", "reason": null, "children": 2}));
    mock.listed(ALL_SECRETS);
    running.finish().await;
}

/// Returns a store of ConfigMaps with its first list, the state of its watch, and the watch.
async fn watched(mock: &Mock) -> (Store<ConfigMap>, Health, JoinHandle<()>) {
    let client = mock.client();
    let (store, health, feed) = guarded_store(&client, None, Selection::default());
    let feed = tokio::spawn(feed);
    store.ready().await;
    mock.watched(ALL_MAPS).await;
    (store, health, feed)
}

/// Waits until a watch has this problem.
async fn complains(health: &Health, of: Option<&str>) {
    let complains = async {
        loop {
            let complaint = health.complaint();
            match (of, &complaint) {
                (None, None) => return,
                (Some(of), Some(complaint)) if complaint.to_string().contains(of) => return,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let timeout = tokio::time::timeout(Duration::from_secs(600), complains).await;
    assert!(timeout.is_ok(), "{:?}", health.complaint());
}

fn bookmark() -> Value {
    json!({"metadata": {"resourceVersion": "2000"}})
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_known_and_recovers() {
    let mock = Mock::default();
    mock.list(ALL_MAPS, json!([outer(900)]));
    let (store, health, feed) = watched(&mock).await;
    complains(&health, None).await;
    mock.refused(ALL_MAPS, 403);
    mock.break_watches(ALL_MAPS);
    complains(&health, Some("fails: no list of that (403)")).await;
    // The known objects remain in the store.
    assert_eq!(store.len(), 1);
    mock.listed(ALL_MAPS);
    mock.watched(ALL_MAPS).await;
    mock.show(ALL_MAPS, "BOOKMARK", &bookmark());
    complains(&health, None).await;
    feed.abort();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stalls_is_known_and_recovers() {
    let mock = Mock::default();
    let (_store, health, feed) = watched(&mock).await;
    complains(&health, None).await;
    // No data arrives, not even a bookmark.
    complains(&health, Some("fails: the API server sent nothing")).await;
    mock.break_watches(ALL_MAPS);
    mock.watched(ALL_MAPS).await;
    mock.show(ALL_MAPS, "BOOKMARK", &bookmark());
    complains(&health, None).await;
    feed.abort();
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_not_read_any_more_lags() {
    let mock = Mock::default();
    let (_store, health, feed) = watched(&mock).await;
    feed.abort();
    complains(&health, None).await;
    tokio::time::advance(Duration::from_secs(200)).await;
    complains(&health, Some("lags: no event for 2")).await;
}
