//! Watchers and tasks on the real API server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use anyhow::{Result, bail};
use axum::http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use oz_admission::{
    CancellationToken, Cx, Error, Replay, RuntimeError, Task, TaskError, Watch, WatchEvent, Watcher,
};
use oz_testkit::eventually;
use parking_lot::Mutex;
use serde_json::json;

use crate::fixture::{Fixture, LONG, Running};

/// A watcher that records its events, as `+a ~a -a`.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Watch for Diary {
    type Object = ConfigMap;

    async fn on_event(&self, _: &Cx, event: WatchEvent<ConfigMap>) {
        let sign = match &event {
            WatchEvent::Added(_) => '+',
            WatchEvent::Modified(_) => '~',
            WatchEvent::Deleted(_) => '-',
        };
        self.0
            .lock()
            .push(format!("{sign}{}", event.object().name_any()));
    }
}

impl Diary {
    async fn reads(&self, wanted: &str) -> Result<()> {
        eventually(&format!("the diary to read {wanted:?}"), LONG, async || {
            let mut now = self.0.lock().clone();
            // Changes of different objects during an outage of the watch have no order.
            now.sort();
            let mut wanted: Vec<_> = wanted.split(' ').collect();
            wanted.sort_unstable();
            if now == wanted {
                Ok(Some(()))
            } else {
                bail!("{now:?}")
            }
        })
        .await
    }
}

async fn create(fixture: &Fixture, name: &str) -> Result<()> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.labels = Some([("watched".to_owned(), "yes".to_owned())].into());
    fixture
        .api()
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

async fn change(fixture: &Fixture, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {"changed": "yes"}}));
    fixture
        .api::<ConfigMap>()
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn delete(fixture: &Fixture, name: &str) -> Result<()> {
    fixture
        .api::<ConfigMap>()
        .delete(name, &DeleteParams::default())
        .await?;
    Ok(())
}

fn watcher(fixture: &Fixture, replay: Replay, diary: &Diary) -> Watcher {
    Watcher::in_namespace("diary", fixture.name(), replay, diary.clone()).labels("watched=yes")
}

#[tokio::test(flavor = "multi_thread")]
async fn watcher_receives_existing_objects_only_on_request() -> Result<()> {
    let fixture = Fixture::new("replay").await?;
    create(&fixture, "past").await?;
    let (historian, reporter) = (Diary::default(), Diary::default());
    let builder = fixture
        .manager()?
        .watcher(watcher(&fixture, Replay::Existing, &historian))
        .watcher(
            Watcher::in_namespace(
                "reporter",
                fixture.name(),
                Replay::FromNow,
                reporter.clone(),
            )
            .labels("watched=yes"),
        );
    let running = Running::start(builder).await?;
    create(&fixture, "new").await?;
    change(&fixture, "past").await?;
    delete(&fixture, "new").await?;
    historian.reads("+past +new ~past -new").await?;
    reporter.reads("+new ~past -new").await?;
    running.stop().await
}

/// Creates a client that answers all watches with 410 Gone while `gone` is set.
fn forgetful(client: Client, gone: Arc<AtomicBool>, refused: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, gone, refused) = (client.clone(), gone.clone(), refused.clone());
        async move {
            let is_watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            if is_watch && gone.load(Ordering::SeqCst) {
                refused.fetch_add(1, Ordering::SeqCst);
                let event = json!({"type": "ERROR", "object": {
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                    "reason": "Expired", "message": "too old resource version",
                }});
                return Ok(Response::new(Body::from(format!("{event}\n").into_bytes())));
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_survives_410_and_sees_each_event_once() -> Result<()> {
    let fixture = Fixture::new("gone").await?;
    create(&fixture, "kept").await?;
    create(&fixture, "doomed").await?;
    let (gone, refused) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let diary = Diary::default();
    let client = forgetful(fixture.client.clone(), gone.clone(), refused.clone());
    let builder = oz_admission::Manager::builder(client, fixture.name())
        .namespace(fixture.name())
        .listener(crate::fixture::bound(0)?)
        .registration(oz_admission::RegistrationMode::Never)
        .drain(std::time::Duration::ZERO)
        .watcher(watcher(&fixture, Replay::Existing, &diary));
    let running = Running::start(builder).await?;
    diary.reads("+kept +doomed").await?;

    // While no watch lives, only lists report changes.
    create(&fixture, "unseen").await?;
    delete(&fixture, "doomed").await?;
    diary.reads("+kept +doomed +unseen -doomed").await?;
    assert!(
        refused.load(Ordering::SeqCst) >= 2,
        "the watch was refused again and again"
    );

    gone.store(false, Ordering::SeqCst);
    change(&fixture, "kept").await?;
    delete(&fixture, "unseen").await?;
    diary
        .reads("+kept +doomed +unseen -doomed ~kept -unseen")
        .await?;
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_watcher_ends_the_process() -> Result<()> {
    struct Buggy;
    impl Watch for Buggy {
        type Object = ConfigMap;
        async fn on_event(&self, _: &Cx, event: WatchEvent<ConfigMap>) {
            assert_ne!(event.object().name_any(), "poison", "a bug in a watcher");
        }
    }
    let fixture = Fixture::new("death").await?;
    let watcher = Watcher::in_namespace("buggy", fixture.name(), Replay::FromNow, Buggy);
    let running = Running::start(fixture.manager()?.watcher(watcher)).await?;
    create(&fixture, "harmless").await?;
    create(&fixture, "poison").await?;
    let error = running.ended().await?;
    assert!(
        matches!(&error, Error::Runtime(RuntimeError::Ended(name)) if &**name == "watcher buggy"),
        "{error}"
    );
    Ok(())
}

/// A task that counts its running instances, and records whether there was ever more than one.
#[derive(Clone, Default)]
struct Alone {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    terms: Arc<AtomicUsize>,
}

impl Task for Alone {
    async fn run(&self, _: &Cx, stop: CancellationToken) -> Result<(), TaskError> {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.terms.fetch_add(1, Ordering::SeqCst);
        stop.cancelled().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_on_one_replica_and_moves_when_that_one_stops() -> Result<()> {
    let fixture = Fixture::new("leader").await?;
    let task = Alone::default();
    let replica = |name: &str| -> Result<_> {
        Ok(fixture
            .manager()?
            .identity(name)
            .task("alone", task.clone()))
    };
    let first = Running::start(replica("one")?).await?;
    eventually("a leader", LONG, async || {
        Ok((task.running.load(Ordering::SeqCst) == 1).then_some(()))
    })
    .await?;
    let second = Running::start(replica("two")?).await?;
    let began = std::time::Instant::now();
    first.stop().await?;
    eventually("the other one to lead", LONG, async || {
        Ok((task.terms.load(Ordering::SeqCst) == 2).then_some(()))
    })
    .await?;
    eprintln!("figure: leadership moved after {:?}", began.elapsed());
    second.stop().await?;
    assert_eq!(task.most.load(Ordering::SeqCst), 1, "never two at once");
    assert_eq!(
        task.running.load(Ordering::SeqCst),
        0,
        "each was told to stop"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_ends_the_process() -> Result<()> {
    struct Failing;
    impl Task for Failing {
        async fn run(&self, _: &Cx, _: CancellationToken) -> Result<(), TaskError> {
            Err("nothing works".into())
        }
    }
    let fixture = Fixture::new("failing").await?;
    let running = Running::launch(fixture.manager()?.task("failing", Failing))?;
    let error = oz_admission::with_causes(&running.ended().await?);
    assert_eq!(error, "failed to continue task failing: nothing works");
    Ok(())
}
