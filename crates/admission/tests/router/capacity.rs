//! Reviews beyond the capacity, and the separation of capacities.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Request, Response},
};
use k8s_openapi::api::core::v1::Pod;
use oz_admission::{
    Cx, FailurePolicy, Hook, Limits, Manager, Notes, Rejection, Review, Validate, testing,
};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::common::{manager, pod, review_of};
use crate::metrics;

/// A handler that signals the start of a review, and waits for a signal to end it.
#[derive(Clone, Default)]
struct Wait {
    inside: Arc<Notify>,
    out: Arc<Notify>,
}

impl Validate for Wait {
    type Object = Pod;

    async fn validate(&self, _: &Cx, _: &Review<Pod>) -> Result<Notes, Rejection> {
        self.inside.notify_one();
        self.out.notified().await;
        Ok(Notes::none())
    }
}

/// Creates a manager of two such hooks, of which one fails open.
fn two(limits: Limits) -> (Arc<Manager>, [Wait; 2]) {
    let waits = [Wait::default(), Wait::default()];
    let [closed, open] = waits.clone();
    let manager = manager("acme")
        .hook(Hook::validating("closed", closed))
        .hook(Hook::validating("open", open).failure(FailurePolicy::Ignore))
        .limits(limits);
    (Arc::new(manager.build().unwrap()), waits)
}

async fn call(manager: Arc<Manager>, hook: &str) -> Response<Body> {
    let body = serde_json::to_vec(&review_of(&pod())).unwrap();
    let request = Request::post(format!("/validate/{hook}")).body(Body::from(body));
    manager.router().oneshot(request.unwrap()).await.unwrap()
}

/// Returns limits with room for one small review, one for each limit that can refuse a second.
fn for_one() -> [Limits; 3] {
    let one = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    [
        one(|limits| limits.concurrent_reviews = 1),
        one(|limits| limits.bodies = 1 << 10),
        one(|limits| limits.objects = 1 << 10),
    ]
}

#[tokio::test(start_paused = true)]
async fn review_beyond_capacity_gets_429_without_retry_after() {
    for limits in for_one() {
        let (manager, waits) = two(limits);
        for (hook, wait) in ["closed", "open"].into_iter().zip(waits) {
            let first = tokio::spawn(call(manager.clone(), hook));
            wait.inside.notified().await;
            let turned_away = call(manager.clone(), hook).await;
            assert_eq!(turned_away.status(), 429, "{hook}");
            // The API server would retry until its timeout, and then show its user the URL.
            assert!(!turned_away.headers().contains_key("retry-after"));
            wait.out.notify_one();
            assert_eq!(first.await.unwrap().status(), 200);
        }
        let metrics = metrics(&manager).await;
        for name in ["overload", "overload_open"] {
            let counted = format!("admission_refused_total{{name=\"{name}\"}} 1");
            assert!(metrics.contains(&counted), "{metrics}");
        }
    }
}

/// Creates a manager of a waiting hook with callers for which handlers vouch.
fn vouching(limits: Limits) -> (Arc<Manager>, Wait) {
    let wait = Wait::default();
    let manager = manager("acme")
        .hook(Hook::validating("closed", wait.clone()))
        .vouches_for_callers()
        .limits(limits);
    (Arc::new(manager.build().unwrap()), wait)
}

async fn call_from(manager: Arc<Manager>, address: [u8; 4]) -> u16 {
    let request = testing::Request::create(&pod()).from_address(address);
    request.send(&manager, "/validate/closed").await.status
}

#[tokio::test(start_paused = true)]
async fn unproven_callers_fill_a_part_of_the_room_and_leave_the_rest() {
    let limits = Limits {
        concurrent_reviews: 4,
        ..Limits::default()
    };
    let (manager, wait) = vouching(limits);
    let first = tokio::spawn(call_from(manager.clone(), [10, 0, 0, 7]));
    wait.inside.notified().await;
    assert_eq!(call_from(manager.clone(), [10, 0, 0, 8]).await, 429);
    let proven = tokio::spawn(call(manager.clone(), "closed"));
    wait.inside.notified().await;
    wait.out.notify_waiters();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(proven.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn full_fail_closed_hook_leaves_capacity_for_fail_open_hook() {
    for limits in for_one() {
        let (manager, [closed, open]) = two(limits);
        let first = tokio::spawn(call(manager.clone(), "closed"));
        closed.inside.notified().await;
        assert_eq!(call(manager.clone(), "closed").await.status(), 429);
        open.out.notify_one();
        assert_eq!(call(manager.clone(), "open").await.status(), 200);
        closed.out.notify_one();
        assert_eq!(first.await.unwrap().status(), 200);
    }
}
