//! Runs that want the same workspace: one has it, the others wait their turn.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use oz_api::harness::{HarnessRun, RunPhase, Workspace};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::support::{BY_HAND, World, message, next_second, reason};

#[tokio::test]
async fn r4_a_workspace_goes_from_one_run_to_the_next_the_oldest_first() -> Result<()> {
    let world = World::new("queue").await?;
    world.workspace("shared", json!({})).await?;
    let on = json!({"workspaceRef": "shared"});
    let first = world.running("first", on.clone()).await?;
    for name in ["second", "third"] {
        let mut spec = on.clone();
        spec["templateRef"] = json!({"name": BY_HAND});
        world.submit(name, spec).await?;
        let busy = |run: &HarnessRun| reason(run, "WorkspaceBound") == Some("WorkspaceBusy");
        world.until(name, "waits for the workspace", busy).await?;
        next_second().await?;
    }
    // One that can never begin keeps nothing locked.
    let mut spec = on.clone();
    spec["templateRef"] = json!({"name": "stored-base", "kind": "ClusterHarnessTemplate"});
    world.submit("never", spec).await?;
    world.phase("never", RunPhase::Failed).await?;

    let held = world.api::<Workspace>().get("shared").await?;
    assert_eq!(held.finalizers().len(), 1, "{:?}", held.finalizers());
    let held = held.status.unwrap_or_default();
    assert_eq!(held.active_run_ref.as_deref(), Some("first"));

    world.agent_ends(&first, 1, "").await?;
    let failed = world.phase("first", RunPhase::Failed).await?;
    assert_eq!(reason(&failed, "Completed"), Some("AgentFailed"));
    for name in ["second", "third"] {
        let pod = world.pod(name).await?;
        let held = world
            .api::<Workspace>()
            .get("shared")
            .await?
            .status
            .unwrap_or_default();
        assert_eq!(held.active_run_ref.as_deref(), Some(name));
        world.agent_ends(&pod, 0, "").await?;
        world.phase(name, RunPhase::Succeeded).await?;
    }
    let free = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.active_run_ref.is_none() && workspace.finalizers().is_empty()
    };
    let free = world.workspace_until("shared", "is free", free).await?;
    assert_eq!(free.status.unwrap_or_default().total_runs, 3);
    Ok(())
}

const MANY: usize = 250;

#[tokio::test]
async fn many_wait_for_one_workspace_and_cost_little_each() -> Result<()> {
    let world = World::new("many").await?;
    world.workspace("shared", json!({})).await?;
    let first = json!({"workspaceRef": "shared"});
    let pod = world.running("first", first).await?;
    let mark = world.cluster.audit().mark()?;
    let spec = json!({"templateRef": {"name": BY_HAND}, "workspaceRef": "shared"});
    let names: Vec<String> = (0..MANY).map(|number| format!("run-{number}")).collect();
    stream::iter(&names)
        .map(|name| world.submit(name, spec.clone()))
        .buffer_unordered(4)
        .try_collect::<Vec<_>>()
        .await?;
    let runs = world.api::<HarnessRun>();
    let places = async || {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for run in runs.list(&ListParams::default()).await?.items {
            *counts
                .entry(message(&run, "WorkspaceBound").to_owned())
                .or_default() += 1;
        }
        Ok::<_, anyhow::Error>(counts)
    };
    eventually("each to know its place", CONDITION_TIMEOUT, async || {
        let counts = places().await?;
        let far = counts.get("Workspace shared is in use; 51 to 250 runs wait before it");
        ensure!(far == Some(&(MANY - 51)), "{counts:?}");
        Ok(Some(()))
    })
    .await?;

    // The next one begins, and hardly any other is told.
    world.agent_ends(&pod, 0, "").await?;
    eventually("the next to begin", CONDITION_TIMEOUT, async || {
        let held = world.api::<Workspace>().get("shared").await?;
        let holder = held.status.and_then(|status| status.active_run_ref);
        Ok(holder.filter(|name| name != "first").map(|_| ()))
    })
    .await?;
    eventually("all to know their place", CONDITION_TIMEOUT, async || {
        let counts = places().await?;
        let far = counts.get("Workspace shared is in use; 51 to 250 runs wait before it");
        ensure!(far == Some(&(MANY - 52)), "{counts:?}");
        Ok(Some(()))
    })
    .await?;
    let writes = world.cluster.audit().since(mark)?;
    let ours = writes.writes().in_namespace(world.name());
    let ours = ours.by_user("system:serviceaccount:oz-system:oz-operator");
    let told = ours.filter(|entry| entry.resource == "harnessruns" && entry.name != "first");
    let told: usize = told.counts().values().sum();
    // As they come, each may be told before those that came before it are seen.
    ensure!(told <= MANY * 3, "{told} writes for {MANY} runs that wait");

    // Those that never began end at once, and the one that did as its pod does.
    let pods = world.api::<Pod>();
    eventually("nothing to be left", CONDITION_TIMEOUT, async || {
        // An API server that is busy gives up in the middle of so many.
        let (now, all) = (DeleteParams::default(), ListParams::default());
        runs.delete_collection(&now, &all).await?;
        for pod in pods.list(&ListParams::default()).await?.items {
            if pod.metadata.deletion_timestamp.is_some() {
                world.kubelet_lets_go(&pod).await?;
            }
        }
        let held = world.api::<Workspace>().get("shared").await?;
        let is_free = held.finalizers().is_empty();
        let left = runs.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0 && is_free, "{left} runs, {:?}", held.status);
        Ok(Some(()))
    })
    .await
}

/// After a forced deletion of the run and its pod, the next run does not wait for them.
#[tokio::test]
async fn a_holder_that_is_deleted_by_force_makes_room_once_its_pod_is_gone() -> Result<()> {
    let world = World::new("forced").await?;
    world.workspace("shared", json!({})).await?;
    let pod = world
        .running("first", json!({"workspaceRef": "shared"}))
        .await?;
    let next = json!({"templateRef": {"name": BY_HAND}, "workspaceRef": "shared"});
    world.submit("second", next).await?;
    let busy = |run: &HarnessRun| reason(run, "WorkspaceBound") == Some("WorkspaceBusy");
    world.until("second", "waits", busy).await?;

    let by_force = DeleteParams::default().grace_period(0);
    world.api::<HarnessRun>().delete("first", &by_force).await?;
    world.told_to_end(&pod).await?;
    let held = world.api::<Workspace>().get("shared").await?;
    let held = held.status.unwrap_or_default();
    assert_eq!(
        held.active_run_ref.as_deref(),
        Some("first"),
        "its pod runs"
    );
    world
        .api::<Pod>()
        .delete(&pod.name_any(), &by_force)
        .await?;

    let pod = world.pod("second").await?;
    world.agent_runs(&pod).await?;
    world.phase("second", RunPhase::Running).await?;
    Ok(())
}
