//! Runs of templates that require approvals.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::harness::{HarnessRun, RunPhase, Workspace};
use oz_api::{AccessRequestApproval, conditions};
use oz_e2e::{Person, by_hand_overlay, records_in};
use oz_trail::Action;
use serde_json::json;

use crate::support::{BY_HAND, World, apply_as, message, next_second, oz};

const ADMIN: Person = Person::new("admin", &["system:masters"]);
const BOB: Person = Person::new("bob", &[]);
const ANSWERS: &str = "accessrequestapprovals";

/// Creates a world with the template `guarded`: bob must approve its runs.
async fn guarded(prefix: &str, timeout: &str) -> Result<World> {
    let world = World::new(prefix).await?;
    let rules = json!([{"name": "security", "users": ["admin", "bob"]}]);
    let spec = json!({
        "podTemplateOverlay": by_hand_overlay(), "workspace": {"required": false},
        "approval": {"rules": rules, "timeout": timeout},
    });
    world.template("guarded", spec).await?;
    let binding = json!({
        "metadata": {"name": "approvers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-approve-access",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    apply_as::<RoleBinding>(&world.api(), binding).await?;
    Ok(world)
}

/// Submits a run, on this workspace if one is given, and waits until its approvers are asked.
async fn waiting(world: &World, name: &str, workspace: Option<&str>) -> Result<HarnessRun> {
    let spec = json!({"templateRef": {"name": "guarded"}, "workspaceRef": workspace});
    world.submit(name, spec).await?;
    let asks = |run: &HarnessRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.approval.is_some())
    };
    world.until(name, "waits for an approval", asks).await
}

fn answer(run: &HarnessRun, name: &str, approval: bool) -> Result<AccessRequestApproval> {
    let status = run
        .status
        .as_ref()
        .and_then(|status| status.approval.as_ref());
    let digest = &status.context("no approver is asked")?.digest;
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessRequestRef": {"kind": "HarnessRun", "name": run.name_any(), "uid": run.uid()},
            "approval": approval, "digest": digest,
        },
    }))?)
}

fn approved(run: &HarnessRun) -> String {
    let conditions = run.status.as_ref().map(|status| &status.conditions);
    let found = conditions.and_then(|all| conditions::find(all, conditions::APPROVED));
    found.map_or_else(String::new, |found| {
        format!("{} {}: {}", found.status, found.reason, found.message)
    })
}

#[tokio::test]
async fn run_begins_after_approval_by_another_user() -> Result<()> {
    let world = guarded("approved", "10m").await?;
    let run = waiting(&world, "mine", None).await?;
    let line = approved(&run);
    ensure!(line.contains("waiting for security: bob may"), "{line}");
    let policies = world.api::<NetworkPolicy>();
    let made = policies.list(&ListParams::default()).await?.items;
    ensure!(made.is_empty(), "{made:?}");
    let own = answer(&run, "own", true)?;
    let refused = ADMIN
        .create(&world.admin, world.name(), ANSWERS, &own)
        .await;
    let refused = format!(
        "{:?}",
        refused.err().context("a self-approval is accepted")?
    );
    ensure!(refused.contains("created HarnessRun"), "{refused}");
    let given = answer(&run, "one", true)?;
    BOB.create(&world.admin, world.name(), ANSWERS, &given)
        .await?;
    let pod = world.pod("mine").await?;
    world.agent_runs(&pod).await?;
    let run = world.phase("mine", RunPhase::Running).await?;
    ensure!(
        approved(&run) == "True Success: Approved by bob (security)",
        "{run:?}"
    );
    let records = world.records("mine").await?;
    let asked = records
        .iter()
        .filter(|one| one.action == Action::ApprovalRequested);
    ensure!(asked.count() == 1, "{records:?}");
    let started = records.iter().find(|one| one.action == Action::RunStarted);
    let started = started.context("no record of the start")?;
    ensure!(
        started.details["approvedBy"] == "bob (security)",
        "{started:?}"
    );
    let given = records_in(&oz().await?.webhook.process)?;
    let is_given = |one: &&oz_trail::Record| {
        one.action == Action::ApprovalGiven && one.request.namespace == world.name()
    };
    ensure!(given.iter().filter(is_given).count() == 1, "{given:?}");
    Ok(())
}

#[tokio::test]
async fn denied_run_and_run_without_approval_in_time_fail() -> Result<()> {
    let world = guarded("denied", "10m").await?;
    let run = waiting(&world, "refused", None).await?;
    let denial = answer(&run, "no", false)?;
    BOB.create(&world.admin, world.name(), ANSWERS, &denial)
        .await?;
    let run = world.phase("refused", RunPhase::Failed).await?;
    ensure!(
        approved(&run) == "False ApprovalDenied: bob denied it",
        "{run:?}"
    );

    let world = guarded("late", "2s").await?;
    world
        .submit("late", json!({"templateRef": {"name": "guarded"}}))
        .await?;
    let run = world.phase("late", RunPhase::Failed).await?;
    ensure!(approved(&run).contains("ApprovalTimedOut"), "{run:?}");
    Ok(())
}

#[tokio::test]
async fn run_without_its_approval_leaves_shared_workspace_to_others() -> Result<()> {
    let world = guarded("place", "10m").await?;
    world.workspace("shared", json!({})).await?;
    let first = waiting(&world, "first", Some("shared")).await?;
    next_second().await?;
    let on = json!({"workspaceRef": "shared"});
    let mut pod = world.running("second", on).await?;
    next_second().await?;
    let third = json!({"templateRef": {"name": BY_HAND}, "workspaceRef": "shared"});
    world.submit("third", third).await?;
    let waits = |ahead: &str| {
        let expected = format!("Workspace shared is used by second; {ahead} before it");
        move |run: &HarnessRun| message(run, "WorkspaceBound") == expected
    };
    let next = waits("no other run waits");
    world.until("third", "is the next", &next).await?;

    // With its approval, the run has its place by its creation.
    let given = answer(&first, "one", true)?;
    BOB.create(&world.admin, world.name(), ANSWERS, &given)
        .await?;
    world.until("first", "is the next", next).await?;
    let behind = waits("1 run waits");
    world.until("third", "waits for the first", behind).await?;
    for (name, then) in [("second", "first"), ("first", "third")] {
        world.agent_ends(&pod, 0, "").await?;
        world.phase(name, RunPhase::Succeeded).await?;
        pod = world.pod(then).await?;
        let held = world.api::<Workspace>().get("shared").await?;
        let holder = held.status.and_then(|status| status.active_run_ref);
        ensure!(holder.as_deref() == Some(then), "{holder:?}");
    }
    world.agent_ends(&pod, 0, "").await?;
    world.phase("third", RunPhase::Succeeded).await?;
    Ok(())
}
