//! The examples of harness runs, as users apply them.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::Api;
use oz_api::conditions;
use oz_api::harness::{BrokerPolicy, RunPhase, Workspace};
use oz_e2e::{repository, run};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::support::World;

/// Applies a file of examples/harness in the namespace of the world.
fn apply(world: &World, name: &str) -> Result<()> {
    apply_file(world, &repository().join("examples/harness").join(name))
}

fn apply_file(world: &World, file: &Path) -> Result<()> {
    let mut kubectl = world.cluster.kubectl("admin");
    kubectl.args(["apply", "-n", world.name(), "-f"]).arg(file);
    run(kubectl)
        .map(drop)
        .with_context(|| file.display().to_string())
}

#[tokio::test]
async fn examples_work_as_described() -> Result<()> {
    let world = World::new("examples").await?;
    for name in ["echo.yaml", "workspace.yaml", "run.yaml"] {
        apply(&world, name)?;
    }
    world.phase("hello", RunPhase::Succeeded).await?;
    let filled = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "Seeded")
    };
    world.workspace_until("demo", "is filled", filled).await?;

    // A run of a template that requires something is admitted with its policy, and with nothing less.
    apply(&world, "claude_code.yaml")?;
    let on = json!({"templateRef": {"name": "claude-code"}, "workspaceRef": "demo"});
    world.submit("fix", on).await?;
    world.phase("fix", RunPhase::Succeeded).await?;
    Ok(())
}

/// In any order: a run waits for its template, its template for its base, and both for the workspace.
#[tokio::test]
async fn manifest_for_original_applies_unchanged() -> Result<()> {
    let world = World::new("original").await?;
    let file = repository().join("e2e/tests/harness/manifests/of_the_original.yaml");
    apply_file(&world, &file)?;
    world.phase("greeting", RunPhase::Succeeded).await?;
    let filled = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "Seeded")
    };
    world
        .workspace_until("shelves", "is filled", filled)
        .await?;
    let policies: Api<BrokerPolicy> = Api::namespaced(world.admin.clone(), world.name());
    for name in [
        "allow-parrot-cli",
        "allow-parrot-usersecret",
        "allow-parrot-pool",
        "allow-parrot-app",
    ] {
        eventually("the policy to be ready", CONDITION_TIMEOUT, async || {
            let status = policies.get(name).await?.status.unwrap_or_default();
            Ok(conditions::is_true(&status.conditions, "Ready").then_some(()))
        })
        .await?;
    }
    // Applied again, it changes nothing.
    let mut kubectl = world.cluster.kubectl("admin");
    kubectl.args(["apply", "-n", world.name(), "-f"]).arg(&file);
    let again = run(kubectl)?;
    assert!(
        again.lines().all(|line| line.ends_with(" unchanged")),
        "{again}"
    );
    Ok(())
}
