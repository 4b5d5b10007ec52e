//! Harness runs with clocks that are an hour off: runs that wait for a time, and runs that a time ends.

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_e2e::{
    Operator, Options, Scene, Webhook, agent_running, announce_broker, apply_as, by_hand_overlay,
    clocks_can_be_shifted, install, install_harness, node_by_hand, volume,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use crate::alone;

/// The default grace period of the pod of a run that must end.
const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// The API server states its time in whole seconds: a component that uses that time alone may be early by one.
const EARLY: SignedDuration = SignedDuration::from_secs(1);
/// The limit of lateness: a run that ends later did not end at its time.
const LATE: SignedDuration = SignedDuration::from_secs(15);

async fn submit(scene: &Scene, name: &str, template: &str, more: Value) -> Result<HarnessRun> {
    let mut spec = json!({"templateRef": {"name": template}, "prompt": "hi"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let run = json!({"metadata": {"name": name}, "spec": spec});
    apply_as(&scene.api::<HarnessRun>(), run).await
}

async fn pod(scene: &Scene, run: &str) -> Result<Pod> {
    let pods = scene.api::<Pod>();
    let of_job = ListParams::default().labels(&format!("job-name={run}"));
    eventually(
        &format!("the pod of {run}"),
        CONDITION_TIMEOUT,
        async || {
            let placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|it| it.node_name.is_some());
            Ok(pods.list(&of_job).await?.items.into_iter().find(placed))
        },
    )
    .await
}

async fn kubelet_says(scene: &Scene, pod: &Pod, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    let pods = scene.api::<Pod>();
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn phase(scene: &Scene, name: &str, phase: RunPhase) -> Result<HarnessRun> {
    let runs = scene.api::<HarnessRun>();
    let title = format!("{name} to be {phase}");
    eventually(&title, CONDITION_TIMEOUT, async || {
        let run = runs.get(name).await?;
        let status = run.status.clone().unwrap_or_default();
        ensure!(status.phase == Some(phase), "{status:?}");
        Ok(Some(run))
    })
    .await
}

/// Checks that an instant is not before its due time, with the tolerance of a clock that is off, and not long after it.
fn ensure_on_time(what: &str, was: Timestamp, due: Timestamp) -> Result<()> {
    let late = was.duration_since(due);
    ensure!(
        late >= -EARLY && late < LATE,
        "{what} at {was}, which was to be at {due}"
    );
    Ok(())
}

/// Checks that a run is ended when its timeout is over.
async fn timeout(scene: &Scene) -> Result<()> {
    submit(scene, "timeout", "echo", json!({"timeout": "4s"})).await?;
    let pod = pod(scene, "timeout").await?;
    kubelet_says(scene, &pod, agent_running()).await?;
    let job = scene.api::<Job>().get("timeout").await?;
    let started = job.status.and_then(|status| status.start_time);
    let due = started.context("no start")?.0 + SignedDuration::from_secs(4);
    let pods = scene.api::<Pod>();
    let told = eventually("its pod to be told to end", CONDITION_TIMEOUT, async || {
        Ok(pods.get(&pod.name_any()).await?.metadata.deletion_timestamp)
    })
    .await?;
    ensure_on_time("told to end", told.0 - GRACE, due)?;
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&pod.name_any(), &at_once).await?;
    let run = phase(scene, "timeout", RunPhase::Failed).await?;
    let status = run.status.unwrap_or_default();
    let completed = conditions::find(&status.conditions, "Completed").context("not told")?;
    ensure!(completed.reason == "DeadlineExceeded", "{completed:?}");
    ensure_on_time("over", status.completion_time.context("no end")?, due)
}

/// Checks that a run that has ended is removed when its time after that is over.
async fn removal(scene: &Scene) -> Result<()> {
    let more = json!({"ttlSecondsAfterFinished": 3});
    submit(scene, "removal", "echo", more).await?;
    let pod = pod(scene, "removal").await?;
    kubelet_says(scene, &pod, agent_running()).await?;
    phase(scene, "removal", RunPhase::Running).await?;
    let ended = Timestamp::from_second(Timestamp::now().as_second())?;
    kubelet_says(scene, &pod, json!({"phase": "Succeeded"})).await?;
    let run = phase(scene, "removal", RunPhase::Succeeded).await?;
    let completed = run.status.and_then(|status| status.completion_time);
    let completed = completed.context("no end")?;
    ensure_on_time("completed", completed, ended)?;
    let runs = scene.api::<HarnessRun>();
    eventually("the run to be gone", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("removal").await?.is_none().then_some(()))
    })
    .await?;
    ensure_on_time(
        "removed",
        Timestamp::now(),
        completed + SignedDuration::from_secs(3),
    )
}

async fn with_offset(cluster: &'static Cluster, offset: &str, name: &str) -> Result<()> {
    let shifted = Options::default().clock(offset);
    let _webhook = Webhook::start(cluster, &shifted.clone().harness()).await?;
    let _operator = Operator::start(cluster, &shifted.harness()).await?;
    let scene = Scene::empty(cluster, name).await?;
    for number in 0..3 {
        volume(&scene.admin, &format!("{}-{number}", scene.name())).await?;
    }
    scene.echo_template(by_hand_overlay()).await?;
    // Both wait for less than the hour by which the clock is off: a template for a minute, a start for five.
    submit(&scene, "early", "late", json!({})).await?;
    submit(&scene, "starting", "echo", json!({})).await?;
    let starting = pod(&scene, "starting").await?;

    timeout(&scene).await?;
    removal(&scene).await?;

    for (name, waits) in [("early", "TemplateNotFound"), ("starting", "Starting")] {
        let run = phase(&scene, name, RunPhase::Pending).await?;
        let conditions = run.status.unwrap_or_default().conditions;
        ensure!(
            conditions
                .iter()
                .any(|it| it.reason == waits || it.reason == "NotStarted"),
            "{conditions:?}"
        );
    }
    let starting = scene.api::<Pod>().get(&starting.name_any()).await?;
    ensure!(
        starting.metadata.deletion_timestamp.is_none(),
        "it was ended"
    );
    Ok(())
}

#[tokio::test]
async fn a_clock_an_hour_off_neither_shortens_a_run_nor_extends_it() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    if !clocks_can_be_shifted()? {
        return Ok(());
    }
    install(cluster).await?;
    install_harness(cluster)?;
    let admin = cluster.client("admin").await?;
    announce_broker(&admin).await?;
    node_by_hand(&admin).await?;
    for (offset, name) in [("+1h", "runs-ahead"), ("-1h", "runs-behind")] {
        with_offset(cluster, offset, name).await.context(offset)?;
    }
    Ok(())
}
