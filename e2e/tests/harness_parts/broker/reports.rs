//! Reports to the broker.

use std::time::Instant;

use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use oz_api::harness::{HarnessRun, RunPhase};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::{USER, as_operator, event, stage, started, summaries};
use crate::cluster;

#[tokio::test]
async fn reports_are_written_once_in_two_seconds_and_the_last_one_wins() -> Result<()> {
    let (scene, broker) = stage("writes").await?;
    let (run, _, token) = started(&scene, "hello", "x").await?;
    let before = cluster().await?.audit().mark()?;
    let began = Instant::now();
    for number in 0..10 {
        let events = json!([event("ToolUse", &number.to_string())]);
        let answer = broker.report(&token, &events).await?;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    eventually("the last report", CONDITION_TIMEOUT, async || {
        Ok((summaries(&scene, &run).await? == ["9"]).then_some(()))
    })
    .await?;
    let allowed = 1 + began.elapsed().as_secs().div_ceil(2);
    let writes = cluster().await?.audit().since(before)?.by_user(USER);
    let writes = writes.in_namespace(scene.name()).writes();
    let all_status = writes.iter().all(|entry| entry.subresource == "status");
    assert!(all_status, "{writes:?}");
    let count = u64::try_from(writes.len())?;
    assert!(
        count >= 1 && count <= allowed,
        "{count} of {allowed}: {writes:?}"
    );
    Ok(())
}

#[tokio::test]
async fn prompt_text_is_not_in_status_and_events_are_bounded() -> Result<()> {
    let (scene, broker) = stage("cleaned").await?;
    let (run, _, token) = started(&scene, "hello", "x").await?;
    let mut events: Vec<_> = (0..30)
        .map(|at| event("ToolUse", &at.to_string()))
        .collect();
    for (type_, field) in [("PromptSubmitted", "text"), ("Message", "content")] {
        let mut one = event(type_, "one\nline");
        one["fields"][field] = json!("what nobody else is to read");
        one["fields"]["role"] = json!("assistant");
        events.push(one);
    }
    let answer = broker.report(&token, &json!(events)).await?;
    assert_eq!(answer.status, 204, "{answer:?}");
    let found = eventually("the events", CONDITION_TIMEOUT, async || {
        let found = scene.api::<HarnessRun>().get("hello").await?;
        let status = found.status.unwrap_or_default();
        Ok((!status.recent_events.is_empty()).then_some(status.recent_events))
    })
    .await?;
    // As many as its Job says.
    assert_eq!(found.len(), 10);
    assert_eq!(found[0].summary, "22");
    assert_eq!(found[9].summary, "one line");
    let text = serde_json::to_string(&found)?;
    assert!(!text.contains("nobody else"), "{text}");
    assert!(text.contains("assistant"), "{text}");
    assert_eq!(summaries(&scene, &run).await?.len(), 10);
    Ok(())
}

/// The operator writes statuses at the same time, by server-side apply.
#[tokio::test]
async fn reports_and_operator_writes_do_not_overwrite_each_other() -> Result<()> {
    let (scene, broker) = stage("shared").await?;
    let (run, _, token) = started(&scene, "hello", "x").await?;
    let runs = as_operator(&scene).await?;
    let apply = PatchParams::apply("oz-operator").force();
    for phase in ["Pending", "Running"] {
        let summary = format!("while {phase}");
        let status = json!({
            "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun",
            "metadata": {"name": run.name_any(), "namespace": scene.name()},
            "status": {"phase": phase, "jobName": "hello"},
        });
        runs.patch_status("hello", &apply, &Patch::Apply(status))
            .await?;
        let answer = broker
            .report(&token, &json!([event("ToolUse", &summary)]))
            .await?;
        assert_eq!(answer.status, 204);
        eventually("the event", CONDITION_TIMEOUT, async || {
            Ok((summaries(&scene, &run).await? == [summary.as_str()]).then_some(()))
        })
        .await?;
    }
    let status = runs.get("hello").await?.status.unwrap_or_default();
    assert_eq!(status.phase, Some(RunPhase::Running));
    assert_eq!(status.recent_events.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_report_takes_the_place_of_the_one_before_also_if_it_is_empty() -> Result<()> {
    let (scene, broker) = stage("empty").await?;
    let (run, _, token) = started(&scene, "hello", "x").await?;
    assert_eq!(
        broker
            .report(&token, &json!([event("Error", "one")]))
            .await?
            .status,
        204
    );
    let there = async |wanted: &[&str]| {
        eventually("the events", CONDITION_TIMEOUT, async || {
            Ok((summaries(&scene, &run).await? == wanted).then_some(()))
        })
        .await
    };
    there(&["one"]).await?;
    assert_eq!(broker.report(&token, &json!([])).await?.status, 204);
    there(&[]).await
}
