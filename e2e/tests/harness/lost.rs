//! Loss of the namespace or the node of a run.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use oz_api::harness::{HarnessRun, RunPhase, Workspace};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::support::{BY_HAND, World, reason};

#[tokio::test]
async fn a_namespace_goes_with_its_runs_and_they_are_on_record() -> Result<()> {
    let world = World::new("leaving").await?;
    world.workspace("shared", json!({})).await?;
    let on = json!({"workspaceRef": "shared"});
    world.running("works", on).await?;
    let waits = json!({"templateRef": {"name": BY_HAND}, "workspaceRef": "shared"});
    world.submit("waits", waits).await?;
    let busy = |run: &HarnessRun| reason(run, "WorkspaceBound") == Some("WorkspaceBusy");
    world.until("waits", "waits", busy).await?;

    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    namespaces
        .delete(world.name(), &DeleteParams::default())
        .await?;
    let pods = world.api::<Pod>();
    eventually(
        "the namespace to be gone",
        2 * CONDITION_TIMEOUT,
        async || {
            for pod in pods.list(&ListParams::default()).await?.items {
                if pod.metadata.deletion_timestamp.is_some() {
                    let confined = world.confined("works").await?;
                    ensure!(confined.is_some(), "nothing confines a pod that runs");
                    world.kubelet_lets_go(&pod).await?;
                }
            }
            let left = namespaces.get_opt(world.name()).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|it| it.status));
            Ok(Some(()))
        },
    )
    .await?;
    let actions: Vec<Action> = world
        .records("works")
        .await?
        .iter()
        .map(|it| it.action)
        .collect();
    assert_eq!(actions, [Action::RunStarted, Action::RunEnded]);
    Ok(())
}

/// The pod of a node that does not respond may still run. Until its end is certain, no other run gets its workspace,
/// and its own run gets no second attempt.
#[tokio::test]
async fn a_run_on_a_node_that_is_lost_keeps_its_workspace_until_its_pod_is_gone() -> Result<()> {
    let world = World::new("lost").await?;
    world.workspace("shared", json!({})).await?;
    let pod = world
        .running("works", json!({"workspaceRef": "shared", "retries": 1}))
        .await?;
    let next = json!({"templateRef": {"name": BY_HAND}, "workspaceRef": "shared"});
    world.submit("next", next).await?;

    // What the eviction from a node that does not answer does; no kubelet confirms it.
    let (pods, name) = (world.api::<Pod>(), pod.name_any());
    pods.delete(&name, &DeleteParams::default()).await?;
    world.told_to_end(&pod).await?;
    let later = async |what: &str| {
        let all = pods.list(&ListParams::default()).await?.items;
        let names = all.iter().map(ResourceExt::name_any);
        let names: Vec<String> = names.filter(|it| it.starts_with("works-")).collect();
        ensure!(names == [name.clone()], "{what}: {names:?}");
        let held = world.api::<Workspace>().get("shared").await?;
        let holder = held.status.and_then(|status| status.active_run_ref);
        ensure!(holder.as_deref() == Some("works"), "{what}: {holder:?}");
        ensure!(
            world.confined("works").await?.is_some(),
            "{what}: it is not confined"
        );
        Ok(())
    };
    // Something that comes after it in the same queues of the operator and of the Job controller.
    let other = world.running("other", json!({})).await?;
    later("while its pod is unknown").await?;

    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&name, &at_once).await?;
    let again = eventually("another attempt", CONDITION_TIMEOUT, async || {
        let again = world.pod("works").await?;
        Ok((again.name_any() != name).then_some(again))
    })
    .await?;
    world.agent_runs(&again).await?;
    world.agent_ends(&again, 0, "").await?;
    world.phase("works", RunPhase::Succeeded).await?;
    let next = world.pod("next").await?;
    world.agent_ends(&next, 0, "").await?;
    world.phase("next", RunPhase::Succeeded).await?;
    world.agent_ends(&other, 0, "").await?;
    Ok(())
}
