//! The examples of harness runs, as users apply them.

use anyhow::{Context as _, Result};
use oz_core::api::harness::{RunPhase, Workspace};
use oz_core::conditions;
use oz_e2e::{repository, run};
use serde_json::json;

use crate::support::World;

/// Applies a file of examples/harness in the namespace of the world.
fn apply(world: &World, name: &str) -> Result<()> {
    let mut kubectl = world.cluster.kubectl("admin");
    let file = repository().join("examples/harness").join(name);
    kubectl.args(["apply", "-n", world.name(), "-f"]).arg(file);
    run(kubectl).map(drop).context(name.to_owned())
}

#[tokio::test]
async fn the_examples_do_what_they_say() -> Result<()> {
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
