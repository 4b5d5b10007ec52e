//! The operator killed again and again while harness runs share workspaces: each run ends, once and on record, and no
//! workspace is left locked or was held twice. `OZ_HARNESS_RUNS` and `OZ_HARNESS_KILLS` make it as long as one likes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_core::api::harness::{HarnessRun, RunPhase, Workspace};
use oz_core::audit::{Action, Record};
use oz_e2e::{
    Operator, Options, Scene, Webhook, announce_broker, apply, apply_as, install, install_harness,
    records_in, volume,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::json;

use crate::alone;

/// How many workspaces the runs share.
const WORKSPACES: usize = 5;

/// A number of the environment.
fn number(name: &str, default: usize) -> Result<usize> {
    std::env::var(name).map_or(Ok(default), |text| Ok(text.parse()?))
}

fn options() -> Options {
    Options::default().harness()
}

async fn set(cluster: &Cluster, scene: &Scene) -> Result<()> {
    for number in 0..WORKSPACES {
        volume(&scene.admin, &format!("{}-{number}", scene.name())).await?;
        let name = format!("shared-{number}");
        let workspace = json!({"metadata": {"name": name}, "spec": {"storage": {"size": "1Gi"}}});
        apply_as(&scene.api::<Workspace>(), workspace).await?;
    }
    scene.echo_template(json!({})).await?;
    announce_broker(&cluster.client("admin").await?).await
}

async fn submit(scene: &Scene, runs: usize) -> Result<()> {
    for number in 0..runs {
        let workspace = format!("shared-{}", number % WORKSPACES);
        let run = json!({
            "metadata": {"name": format!("run-{number}")},
            "spec": {"templateRef": {"name": "echo"}, "workspaceRef": workspace, "prompt": "hi"},
        });
        apply_as(&scene.api::<HarnessRun>(), run).await?;
    }
    Ok(())
}

/// Starts the operator and kills it, at moments that move through all that it does. Gives what it put on record.
async fn killed(cluster: &Cluster, kills: usize) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for kill in 0..kills {
        let mut operator = Operator::spawn(cluster, &options())?;
        // Between none and two seconds, spread by the golden ratio.
        let moment = (kill as u64 * 1_236) % 2_000;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        operator.process.kill9();
        records.extend(whole(&operator)?);
    }
    Ok(records)
}

/// The records of an operator that was killed: the last line may be torn.
fn whole(operator: &Operator) -> Result<Vec<Record>> {
    let lines = operator.process.lines()?;
    let records = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(records.collect())
}

/// That no two pods that may run have the same claim.
async fn alone_on_workspaces(scene: &Scene) -> Result<()> {
    let pods = scene.api::<Pod>().list(&ListParams::default()).await?.items;
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            continue;
        }
        let name = pod.name_any();
        let volumes = pod.spec.and_then(|spec| spec.volumes).into_iter().flatten();
        let claims = volumes.filter_map(|volume| volume.persistent_volume_claim);
        for claim in claims {
            held.entry(claim.claim_name).or_default().push(name.clone());
        }
    }
    ensure!(
        held.values().all(|pods| pods.len() == 1),
        "held twice: {held:?}"
    );
    Ok(())
}

/// Waits until every run is over, and sees that none shares its workspace meanwhile.
async fn all_over(scene: &Scene, runs: usize) -> Result<()> {
    let deadline = Instant::now() + CONDITION_TIMEOUT * 2;
    loop {
        alone_on_workspaces(scene).await?;
        let all = scene
            .api::<HarnessRun>()
            .list(&ListParams::default())
            .await?
            .items;
        let phase = |run: &HarnessRun| run.status.as_ref().and_then(|status| status.phase);
        let over = all
            .iter()
            .filter(|run| phase(run) == Some(RunPhase::Succeeded))
            .count();
        if over == runs {
            return Ok(());
        }
        let bad = [RunPhase::Failed, RunPhase::Cancelled];
        let bad: Vec<_> = all
            .iter()
            .filter(|run| phase(run).is_some_and(|it| bad.contains(&it)))
            .collect();
        ensure!(bad.is_empty(), "{bad:?}");
        ensure!(Instant::now() < deadline, "{over} of {runs} are over");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn killed_again_and_again_each_run_ends_once_and_workspaces_are_free() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (runs, kills) = (
        number("OZ_HARNESS_RUNS", 20)?,
        number("OZ_HARNESS_KILLS", 12)?,
    );
    install(cluster).await?;
    install_harness(cluster)?;
    let _webhook = Webhook::start(cluster, &Options::default().flag("--harness")).await?;
    apply(cluster, "deploy/policies/harness")?;
    let scene = Scene::empty(cluster, "runs").await?;
    set(cluster, &scene).await?;
    submit(&scene, runs).await?;
    let mut records = killed(cluster, kills).await?;
    alone_on_workspaces(&scene).await?;
    let operator = Operator::start(cluster, &options()).await?;
    all_over(&scene, runs).await?;

    let workspaces = scene.api::<Workspace>();
    eventually("workspaces to be free", CONDITION_TIMEOUT, async || {
        let all = workspaces.list(&ListParams::default()).await?.items;
        for workspace in &all {
            let status = workspace.status.clone().unwrap_or_default();
            let is_free = status.active_run_ref.is_none() && workspace.finalizers().is_empty();
            ensure!(is_free, "{} is held: {status:?}", workspace.name_any());
        }
        let held: i32 = all
            .iter()
            .filter_map(|it| Some(it.status.as_ref()?.total_runs))
            .sum();
        ensure!(
            usize::try_from(held)? == runs,
            "{held} of {runs} were counted"
        );
        Ok(Some(()))
    })
    .await?;

    // A record that was written twice is one: it has the same ID.
    records.extend(records_in(&operator.process)?);
    let about = |run: &str, action: Action| -> usize {
        let its = records
            .iter()
            .filter(|it| it.request.namespace == scene.name());
        let its = its.filter(|it| it.request.name == run && it.action == action);
        its.map(|it| &it.id).collect::<BTreeSet<_>>().len()
    };
    for number in 0..runs {
        let name = format!("run-{number}");
        for action in [Action::RunStarted, Action::RunEnded] {
            assert_eq!(about(&name, action), 1, "{name}: {action:?}");
        }
        assert_eq!(about(&name, Action::DriftDetected), 0, "{name}");
    }
    Ok(())
}
