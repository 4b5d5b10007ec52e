//! Changes, as they occur.

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use oz_e2e::{TEMPLATE, Watch, exec_request};
use serde_json::Value;

use crate::scene;

#[tokio::test]
async fn a_request_is_shown_from_its_grant_to_its_end() -> Result<()> {
    let scene = scene("watch").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("before", TEMPLATE, "10m"))
        .await?;
    let text = Watch::start(&scene, "admin", &[]).await?;
    let json = Watch::start(&scene, "admin", &["-o", "json"]).await?;
    alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    text.shows(&[
        "ExecAccessRequest mine",
        "Active",
        "alice",
        TEMPLATE,
        "until ",
    ])
    .await?;
    let line = json.shows(&["\"mine\"", "\"Active\""]).await?;
    let change: Value = serde_json::from_str(&line)?;
    assert_eq!(change["kind"], "ExecAccessRequest");
    assert_eq!(change["user"], "alice");
    ensure!(change["until"].is_string(), "{line}");
    alice.api().delete("mine", &DeleteParams::default()).await?;
    json.shows(&["\"mine\"", "\"deleted\":true"]).await?;
    text.shows(&["ExecAccessRequest mine", "Deleted"]).await?;
    // An earlier change is not reported, and no change is reported twice.
    let said = json.read("stdout")?;
    ensure!(!said.contains("\"before\""), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let mut once = lines.clone();
    once.dedup();
    assert_eq!(lines, once);
    assert_eq!(text.interrupted()?, Some(0));
    assert_eq!(json.interrupted()?, Some(0));
    Ok(())
}

#[tokio::test]
async fn watch_omits_forbidden_kinds_and_reports_them() -> Result<()> {
    let scene = scene("watch-less").await?;
    let mut command = crate::ozctl(&scene, "mallory", &["watch", "-A"])?;
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8(output.stderr)?;
    ensure!(!output.status.success(), "{said}");
    ensure!(said.contains("AccessLock: not watched"), "{said}");
    said.lines().last().context("nothing was said")?;
    Ok(())
}
