//! The effect of the end of a part, and the order in which the parts stop.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tower::service_fn;

use super::*;
use crate::{Election, SystemClock, TaskError};

/// Returns a process with an API server that does not respond.
fn runtime() -> Runtime {
    let silent = service_fn(|_: Request<Body>| async {
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    Runtime::new("test", Client::new(silent, "default"), SystemClock)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_begun_again_and_one_that_ends_is_done() {
    let (panicked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (panics, ends) = (Arc::clone(&panicked), Arc::clone(&ended));
    let mut runtime = runtime();
    runtime
        .task("panics", Who::Leader, move || {
            let times = panics.fetch_add(1, Ordering::Relaxed);
            async move { assert!(times > 1, "a defect") }
        })
        .task("ends", Who::Everyone, move || {
            ends.fetch_add(1, Ordering::Relaxed);
            async {}
        });
    let mut running = runtime.start().await.unwrap();
    let failed = timeout(Duration::from_secs(3_600), running.failed()).await;
    assert!(failed.is_err(), "the process goes on: {failed:?}");
    assert_eq!(panicked.load(Ordering::Relaxed), 3);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_part_and_after_the_error_of_a_service_the_process_ends_and_says_why() {
    let mut lacking = runtime();
    lacking.part("the roof", |_| async {});
    let error = lacking.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to keep the roof running");

    let mut lacking = runtime();
    lacking.part("the roof", |_| async { panic!("a defect") });
    let error = lacking.run(CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Ended(name) if &*name == "the roof"));

    let mut failing = runtime();
    failing.service("canteen", Who::Leader, |_| async {
        Err(TaskError::from("no fish"))
    });
    let error = failing.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(
        crate::with_causes(&error),
        "failed to continue task canteen: no fish"
    );
}

#[tokio::test(start_paused = true)]
async fn leader_services_stop_on_step_down_and_others_continue() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let mut runtime = runtime();
    for (name, who) in [("leader", Who::Leader), ("everyone", Who::Everyone)] {
        let said = Arc::clone(&said);
        runtime.service(name, who, move |stop| {
            let said = Arc::clone(&said);
            async move {
                stop.cancelled().await;
                said.lock().push(name);
                Ok(())
            }
        });
    }
    // A service that ignores the token is dropped.
    runtime.service("deaf", Who::Leader, |_| std::future::pending());
    let mut running = runtime.start().await.unwrap();
    running.step_down().await;
    assert_eq!(*said.lock(), ["leader"]);
    running.stop().await;
    assert_eq!(*said.lock(), ["leader", "everyone"]);
}

#[tokio::test(start_paused = true)]
async fn leader_task_waits_for_lease() {
    let ran = Arc::new(AtomicUsize::new(0));
    let runs = Arc::clone(&ran);
    let mut runtime = runtime();
    runtime.election(Election::lease("default", "lease", "me"));
    runtime.task("alone", Who::Leader, move || {
        runs.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    });
    let leadership = runtime.leadership().clone();
    let mut running = runtime.start().await.unwrap();
    let failed = timeout(Duration::from_secs(600), running.failed()).await;
    assert!(failed.is_err(), "it goes on trying: {failed:?}");
    assert!(!leadership.holds());
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    running.stop().await;
}
