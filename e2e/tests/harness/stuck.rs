//! Runs that cannot go on: no node takes their pod, or their agent is killed. They say why, end by their own timeout,
//! and keep nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase, Workspace};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::support::{BY_HAND, World, apply_as, message, reason};

/// Submits a run with a pod that cannot be scheduled, and checks its messages and its end.
async fn waits_and_ends(world: &World, name: &str, spec: Value, says: &[&str]) -> Result<()> {
    world.submit(name, spec).await?;
    let told = |run: &HarnessRun| {
        let why = message(run, "PodReady");
        why.starts_with("no node takes the pod: ") && says.iter().any(|part| why.contains(part))
    };
    let what = format!("says that no node takes its pod ({says:?})");
    world.until(name, &what, told).await?;
    let run = world.phase(name, RunPhase::Failed).await?;
    ensure!(
        reason(&run, "Completed") == Some("DeadlineExceeded"),
        "{:?}",
        run.status
    );
    ensure!(told(&run), "it is forgotten why: {:?}", run.status);
    world.let_out(name).await
}

#[tokio::test]
async fn a_claim_that_never_binds_holds_a_run_up_until_its_timeout_and_says_so() -> Result<()> {
    let world = World::new("unbound").await?;
    // No volume is that large.
    let huge = json!({"storage": {"size": "1Ti"}});
    world.workspace("huge", huge).await?;
    let spec = json!({
        "templateRef": {"name": BY_HAND}, "workspaceRef": "huge", "timeout": "8s",
    });
    waits_and_ends(&world, "waits", spec, &["PersistentVolumeClaim"]).await?;
    let free = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.active_run_ref.is_none() && workspace.finalizers().is_empty()
    };
    let huge = world.workspace_until("huge", "is free", free).await?;
    let conditions = huge.status.unwrap_or_default().conditions;
    let bound = conditions::find(&conditions, "PVCBound").context("no PVCBound")?;
    assert_eq!(
        (bound.status.as_str(), bound.reason.as_str()),
        ("False", "Pending")
    );
    Ok(())
}

/// The template of the run excludes the node of its volume.
#[tokio::test]
async fn a_volume_on_another_node_holds_a_run_up_until_its_timeout_and_says_so() -> Result<()> {
    let world = World::new("elsewhere").await?;
    let (far, class) = (
        format!("{}-far", world.name()),
        format!("{}-class", world.name()),
    );
    let nodes = Api::<Node>::all(world.admin.clone());
    let node = json!({
        "metadata": {"name": far, "labels": {"kubernetes.io/hostname": far}},
        "spec": {"taints": [{"key": "node", "value": far, "effect": "NoSchedule"}]},
    });
    apply_as(&nodes, node).await?;
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [far]});
    let volume = json!({
        "metadata": {"name": far},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "local": {"path": "/nonexistent"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    });
    apply_as(&Api::<PersistentVolume>::all(world.admin.clone()), volume).await?;
    let storage = json!({"storage": {"size": "1Gi", "storageClass": class}});
    world.workspace("far", storage).await?;
    let claims = world.api::<PersistentVolumeClaim>();
    eventually("the claim to be bound", CONDITION_TIMEOUT, async || {
        let claim = claims.get_opt("ws-far").await?;
        let phase = claim.and_then(|it| it.status?.phase);
        Ok((phase.as_deref() == Some("Bound")).then_some(()))
    })
    .await?;
    let spec = json!({
        "templateRef": {"name": BY_HAND}, "workspaceRef": "far", "timeout": "8s",
    });
    waits_and_ends(
        &world,
        "waits",
        spec,
        &["volume node affinity", "didn't match"],
    )
    .await
}

#[tokio::test]
async fn killed_agent_ends_run_with_exit_code() -> Result<()> {
    let world = World::new("killed").await?;
    let oom = json!({"terminated": {
        "exitCode": 137, "reason": "OOMKilled",
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
    }});
    for (name, state, says) in [
        ("killed", None, "exit code 137"),
        ("starved", Some(oom), "more memory than it may"),
    ] {
        let pod = world.running(name, json!({})).await?;
        match state {
            None => world.agent_ends(&pod, 137, "").await?,
            Some(state) => failed(&world, &pod, state).await?,
        }
        let run = world.phase(name, RunPhase::Failed).await?;
        let status = run.status.unwrap_or_default();
        let completed = conditions::find(&status.conditions, "Completed").context("not told")?;
        assert_eq!(completed.reason, "AgentFailed");
        assert!(completed.message.contains(says), "{}", completed.message);
        world.let_out(name).await?;
    }
    Ok(())
}

async fn failed(world: &World, pod: &Pod, state: Value) -> Result<()> {
    let agent = json!({
        "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    let status = json!({"status": {"phase": "Failed", "containerStatuses": [agent]}});
    let pods = world.api::<Pod>();
    pods.patch_status(
        &pod.name_any(),
        &PatchParams::default(),
        &Patch::Merge(status),
    )
    .await?;
    Ok(())
}
