//! Workspaces that are filled: by a Job, once, before any run has them. What the Job's script does is tested where it
//! is; here its pods end by themselves, or never begin.

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use oz_api::conditions;
use oz_api::harness::{RunPhase, Workspace, WorkspacePhase};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::definitions::stored;
use crate::support::{TEMPLATE, World};

const SEED: &str = "https://git.test/kubebuilder.git";

fn phase(workspace: &Workspace) -> Option<WorkspacePhase> {
    workspace.status.as_ref()?.phase
}

/// Returns the existing objects of a seed, by kind and name.
async fn parts(world: &World, workspace: &str) -> Result<Vec<String>> {
    let all = ListParams::default();
    let jobs = world.api::<Job>().list(&all).await?.items;
    let policies = world.api::<NetworkPolicy>().list(&all).await?.items;
    let pods = world.api::<Pod>().list(&all).await?.items;
    let jobs = jobs.iter().map(|it| format!("Job {}", it.name_any()));
    let policies = policies
        .iter()
        .map(|it| format!("NetworkPolicy {}", it.name_any()));
    let pods = pods.iter().map(|it| format!("Pod {}", it.name_any()));
    let found = jobs.chain(policies).chain(pods);
    let name = format!(" {workspace}-seed");
    Ok(found.filter(|it| it.contains(&name)).collect())
}

async fn cleared(world: &World, workspace: &str) -> Result<()> {
    eventually("what filled it to be gone", CONDITION_TIMEOUT, async || {
        let parts = parts(world, workspace).await?;
        ensure!(parts.is_empty(), "{parts:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn r12_a_workspace_is_filled_once_and_then_runs_have_it() -> Result<()> {
    let world = World::new("seeds").await?;
    let mark = world.cluster.audit().mark()?;
    world
        .workspace(
            "demo",
            json!({"seed": {"repos": [{"url": SEED, "depth": 1}]}}),
        )
        .await?;
    world
        .submit(
            "waits",
            json!({"templateRef": {"name": TEMPLATE}, "workspaceRef": "demo"}),
        )
        .await?;
    let filled = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "Seeded") && status.seed_job_name.is_some()
    };
    world.workspace_until("demo", "is filled", filled).await?;
    world.phase("waits", RunPhase::Succeeded).await?;
    cleared(&world, "demo").await?;
    // Whatever happens to it now, nobody fills it again.
    let workspaces = world.api::<Workspace>();
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    workspaces
        .patch("demo", &PatchParams::default(), &label)
        .await?;
    world
        .submit(
            "again",
            json!({"templateRef": {"name": TEMPLATE}, "workspaceRef": "demo"}),
        )
        .await?;
    world.phase("again", RunPhase::Succeeded).await?;
    let free = |workspace: &Workspace| workspace.finalizers().is_empty();
    world.workspace_until("demo", "is free", free).await?;

    let writes = world.cluster.audit().since(mark)?;
    let ours = writes.writes().in_namespace(world.name());
    let made = ours.filter(|entry| entry.resource == "jobs" && entry.name == "demo-seed");
    let made = made.filter(|entry| matches!(entry.verb.as_str(), "create" | "patch"));
    assert_eq!(made.counts().values().sum::<usize>(), 1, "{made:?}");
    Ok(())
}

#[tokio::test]
async fn deleted_workspace_ends_seeding_while_run_waits() -> Result<()> {
    let world = World::new("seeding").await?;
    // No volume is that large: the pod never begins.
    let huge = json!({"storage": {"size": "1Ti"}, "seed": {"repos": [{"url": SEED}]}});
    world.workspace("huge", huge).await?;
    world
        .submit(
            "waits",
            json!({"templateRef": {"name": TEMPLATE}, "workspaceRef": "huge"}),
        )
        .await?;
    let seeding = |workspace: &Workspace| {
        phase(workspace) == Some(WorkspacePhase::Seeding) && !workspace.finalizers().is_empty()
    };
    world
        .workspace_until("huge", "is being filled", seeding)
        .await?;
    let waits = |run: &_| crate::support::phase_of(run) == Some(RunPhase::Pending);
    world.until("waits", "waits", waits).await?;
    eventually("a pod", CONDITION_TIMEOUT, async || {
        Ok((parts(&world, "huge").await?.len() == 3).then_some(()))
    })
    .await?;
    let workspaces = world.api::<Workspace>();
    workspaces.delete("huge", &DeleteParams::default()).await?;
    cleared(&world, "huge").await?;
    eventually("it to be gone", CONDITION_TIMEOUT, async || {
        let there = workspaces.get_opt("huge").await?;
        ensure!(there.is_none(), "{there:?}");
        Ok(Some(()))
    })
    .await
}

/// Stored while no webhook asked whether its author may read the Secret.
#[tokio::test]
async fn r31_unstamped_seed_gets_no_secret() -> Result<()> {
    let world = World::new("vouched").await?;
    let workspaces = stored::<Workspace>(world.cluster).await?;
    let title = "the seed of an unstamped workspace to be refused";
    eventually(title, CONDITION_TIMEOUT, async || {
        let status = workspaces
            .get("unstamped")
            .await?
            .status
            .unwrap_or_default();
        let ready = conditions::find(&status.conditions, "Ready");
        let is_refused = ready.is_some_and(|it| it.reason == "NotStamped");
        ensure!(is_refused, "{status:?}");
        Ok(Some(()))
    })
    .await?;
    let jobs = stored::<Job>(world.cluster).await?;
    assert!(jobs.get_opt("unstamped-seed").await?.is_none());

    // With the webhook in its path it is filled.
    let repository = json!({"url": SEED, "credentialsSecretRef": {"name": "key"}});
    world
        .workspace("stamped", json!({"seed": {"repos": [repository]}}))
        .await?;
    let filled = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "Seeded")
    };
    world
        .workspace_until("stamped", "is filled", filled)
        .await?;
    Ok(())
}

#[tokio::test]
async fn repository_without_served_credentials_fails_workspace() -> Result<()> {
    let world = World::new("unseeded").await?;
    let broker = json!({"url": SEED, "brokerCredentialRef": {"name": "git", "key": "TOKEN"}});
    world
        .workspace("brokered", json!({"seed": {"repos": [broker]}}))
        .await?;
    let failed = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, "Ready");
        phase(workspace) == Some(WorkspacePhase::Failed)
            && ready.is_some_and(|it| it.reason == "CredentialsNotServed")
    };
    world
        .workspace_until("brokered", "has failed", failed)
        .await?;
    assert_eq!(parts(&world, "brokered").await?, [""; 0]);
    Ok(())
}
