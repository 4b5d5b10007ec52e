//! Defects of the original, by their numbers, that no other test covers: messages, audit records and their retention.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_e2e::Auditor;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::support::World;

/// The reasons of the events about a run, of both types.
async fn list_event_reasons(world: &World, run: &str) -> Result<BTreeSet<(String, String)>> {
    let events = world.api::<Event>().list(&ListParams::default()).await?;
    let about = events.items.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|it| {
            it.kind.as_deref() == Some("HarnessRun") && it.name.as_deref() == Some(run)
        })
    });
    Ok(about
        .map(|event| {
            (
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
            )
        })
        .collect())
}

/// The original says of each run, in its first pass, that its confinement was withdrawn.
#[tokio::test]
async fn r7_run_has_events_of_actual_changes_only() -> Result<()> {
    let world = World::new("told").await?;
    let pod = world.running("hello", json!({})).await?;
    world.agent_ends(&pod, 0, "").await?;
    world.phase("hello", RunPhase::Succeeded).await?;
    world.let_out("hello").await?;
    let normal = |reason: &str| ("Normal".to_owned(), reason.to_owned());
    let expected = BTreeSet::from(["JobCreated", "Running", "Succeeded"].map(normal));
    // One event tells of Job and agent where one status does.
    let in_one = BTreeSet::from(["JobCreated", "Succeeded"].map(normal));
    eventually("the events of the run", CONDITION_TIMEOUT, async || {
        let told = list_event_reasons(&world, "hello").await?;
        ensure!(told == expected || told == in_one, "{told:?}");
        Ok(Some(()))
    })
    .await?;
    let records = world.records("hello").await?;
    let actions: Vec<Action> = records.iter().map(|it| it.action).collect();
    assert_eq!(actions, [Action::RunStarted, Action::RunEnded]);
    Ok(())
}

/// The original's have neither an end nor the condition that says why.
#[tokio::test]
async fn r9_a_run_that_fails_before_its_job_has_an_end_and_says_why() -> Result<()> {
    let world = World::new("before").await?;
    let named = json!({"name": "stored-base", "kind": "ClusterHarnessTemplate"});
    world.submit("never", json!({"templateRef": named})).await?;
    let run = world.phase("never", RunPhase::Failed).await?;
    let created = run.metadata.creation_timestamp.context("no creation")?.0;
    let status = run.status.unwrap_or_default();
    let completed = status.completion_time.context("no completionTime")?;
    assert!(completed >= created);
    let condition = conditions::find(&status.conditions, "Completed").context("no Completed")?;
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("True", "TemplateInvalid")
    );
    assert!(condition.message.contains("hostNetwork"), "{condition:?}");
    assert!(world.api::<Job>().get_opt("never").await?.is_none());
    assert!(world.confined("never").await?.is_none());
    Ok(())
}

/// The original deletes its records with the object that they are about.
#[tokio::test]
async fn r15_records_of_a_run_have_no_owner_and_stay_when_it_goes() -> Result<()> {
    let world = World::new("stay").await?;
    let pod = world.running("short", json!({})).await?;
    world.agent_ends(&pod, 0, "").await?;
    world.phase("short", RunPhase::Succeeded).await?;
    let runs = world.api::<HarnessRun>();
    runs.delete("short", &DeleteParams::foreground()).await?;
    eventually("the run to be gone", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("short").await?.is_none().then_some(()))
    })
    .await?;
    let auditor = Auditor::pinning(&world.admin).await?;
    let whole = ["RunSubmitted", "RunStarted", "RunEnded", "RequestDeleted"];
    let whole = BTreeSet::from(whole.map(ToOwned::to_owned));
    eventually("its records", CONDITION_TIMEOUT, async || {
        let events = auditor.events().list(&ListParams::default()).await?.items;
        let its: Vec<_> = events
            .into_iter()
            .filter(|event| {
                let request = &event.data["spec"]["request"];
                request["namespace"] == world.name() && request["name"] == "short"
            })
            .collect();
        let owned = its.iter().any(|it| it.metadata.owner_references.is_some());
        let actions: BTreeSet<String> = its
            .iter()
            .filter_map(|it| Some(it.data["spec"]["action"].as_str()?.to_owned()))
            .collect();
        ensure!(!owned && actions == whole, "{actions:?}, owned: {owned}");
        Ok(Some(()))
    })
    .await
}
