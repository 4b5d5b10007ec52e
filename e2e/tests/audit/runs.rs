//! Repeated kills of the operator while harness runs share workspaces: each run ends, once and with a record, no
//! workspace stays locked or was held twice, and the trail is complete.
//!
//! The test runs a few times; hundreds of times in the long form (`OZ_LONG=1`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::harness::{HarnessRun, RunPhase, Workspace};
use oz_e2e::{
    Auditor, Operator, Options, Scene, Webhook, announce_broker, apply, apply_as, install_harness,
    records_in, volume,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, scaled};
use oz_trail::{Action, Record};
use serde_json::json;

use crate::alone;
use crate::support::clean;

/// The number of workspaces that the runs share.
const WORKSPACES: usize = 5;

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

/// Starts the operator and kills it, at moments that move through all its work. Returns its audit records.
async fn killed(cluster: &Cluster, kills: usize, auditor: &mut Auditor) -> Result<Vec<Record>> {
    let began = Instant::now();
    let mut records = Vec::new();
    for _ in 0..kills {
        let mut operator = Operator::spawn(cluster, &options())?;
        // No two runs share these moments: at most of them the operator leads and writes.
        let nanos = u64::from(began.elapsed().subsec_nanos());
        tokio::time::sleep(Duration::from_millis(nanos % 2_000)).await;
        operator.process.kill9();
        auditor.log(&operator.process);
        records.extend(whole(&operator)?);
    }
    Ok(records)
}

/// Returns the records of an operator that was killed: the last line may be incomplete.
fn whole(operator: &Operator) -> Result<Vec<Record>> {
    let lines = operator.process.lines()?;
    let records = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(records.collect())
}

/// Checks that no two pods that may run have the same claim.
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

/// Checks continuously that no two pods share a workspace; it ends when they do.
async fn never_shared(scene: &Scene) -> Result<()> {
    loop {
        alone_on_workspaces(scene).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until every run has succeeded. The test gives no run a reason to end otherwise.
async fn all_over(scene: &Scene, runs: usize) -> Result<()> {
    let api = scene.api::<HarnessRun>();
    // Runs that take turns on a workspace take longer the more there are.
    let turns = u32::try_from(runs.div_ceil(WORKSPACES))?;
    let within = CONDITION_TIMEOUT + Duration::from_secs(5) * turns;
    let mut ended = Vec::new();
    eventually("all runs to be over", within, async || {
        let all = api.list(&ListParams::default()).await?.items;
        let with = |wanted: &[RunPhase]| -> Vec<String> {
            let phase = |run: &HarnessRun| run.status.as_ref().and_then(|status| status.phase);
            let found = all
                .iter()
                .filter(|run| phase(run).is_some_and(|it| wanted.contains(&it)));
            found.map(ResourceExt::name_any).collect()
        };
        let over = with(&[RunPhase::Succeeded]).len();
        ended = with(&[RunPhase::Failed, RunPhase::Cancelled]);
        ensure!(
            over == runs || !ended.is_empty(),
            "{over} of {runs} are over"
        );
        Ok(Some(()))
    })
    .await?;
    ensure!(ended.is_empty(), "they ended otherwise: {ended:?}");
    Ok(())
}

/// Waits until no run holds a workspace, and checks that each run had its own once.
async fn all_free(scene: &Scene, runs: usize) -> Result<()> {
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
    .await
}

#[tokio::test]
async fn killed_again_and_again_each_run_ends_once_and_workspaces_are_free() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (runs, kills) = scaled((20, 12), (500, 200));
    install_harness(cluster)?;
    let webhook = Webhook::start(cluster, &Options::default().harness()).await?;
    apply(cluster, "deploy/policies/harness")?;
    let scene = Scene::empty(cluster, "runs").await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.log(&webhook.process);
    set(cluster, &scene).await?;
    submit(&scene, runs).await?;
    let began = Instant::now();
    let mut records = tokio::select! {
        records = killed(cluster, kills, &mut auditor) => records?,
        shared = never_shared(&scene) => return shared,
    };
    let while_killed = began.elapsed();
    let operator = Operator::start(cluster, &options()).await?;
    // The first operator of the cluster may be one of these, and no key was published before.
    let logs = std::mem::take(&mut auditor.logs);
    auditor = Auditor::pinning(&scene.admin).await?;
    auditor.logs = logs;
    auditor.log(&operator.process);
    tokio::select! {
        over = all_over(&scene, runs) => over?,
        shared = never_shared(&scene) => return shared,
    }
    all_free(&scene, runs).await?;

    // A record that was written twice counts once: both have the same ID.
    let before = records.len();
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
    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    eprintln!(
        "{runs} runs, {kills} kills in {while_killed:?} with {before} records; {} records of {} processes, {:?} in all",
        report.records(),
        report.chains.len(),
        began.elapsed()
    );
    Ok(())
}
