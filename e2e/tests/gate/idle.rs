//! Idle timeout: a session without activity ends, and an active session does not.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use oz_e2e::{Session, exec_request, gate_template, records_in, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use crate::Whole;
use crate::passing::said;

const IDLE: &str = "idle";

#[tokio::test]
async fn idle_session_ends_and_terminal_shows_reason() -> Result<()> {
    let whole = Whole::start("idle").await?;
    let scene = &whole.scene;
    let mut template = gate_template();
    template.metadata.name = Some(IDLE.to_owned());
    template.spec.access_config.idle_timeout = Some("10s".to_owned());
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", IDLE, "10m")).await?;
    let pod = granted.pod();
    let command = |script: &str| {
        let command = ["exec", "-i", &pod, "--", "sh", "-c", script];
        scene.through_gate("alice", "mine", &command)
    };
    let talks = "echo here; while true; do echo still; sleep 1; done";
    let talking = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(Session::open(command(talks)).ok())
    })
    .await?;
    let mut silent = command("echo here; exec cat");
    silent.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut silent = silent.stderr(Stdio::piped()).spawn()?;
    // Standard input stays open, so that kubectl does not report the end of input.
    let input = silent.stdin.take().context("no standard input")?;
    let told = tokio::task::spawn_blocking(move || silent.wait_with_output());
    let told = tokio::time::timeout(CONDITION_TIMEOUT, told).await???;
    let told = said(&told);
    drop(input);
    assert!(
        told.contains("this session had no input and no output for 10s"),
        "{told}"
    );
    assert!(talking.is_open(), "what was used has ended");
    let reasons = eventually("the end to be on record", CONDITION_TIMEOUT, async || {
        let records = records_in(&whole.gate.process)?;
        let of_it = records.into_iter().filter(|record| {
            record.action == Action::SessionTerminated && record.request.namespace == scene.name()
        });
        let reasons: Vec<String> = of_it.map(|record| record.reason).collect();
        Ok((!reasons.is_empty()).then_some(reasons))
    })
    .await?;
    assert_eq!(reasons, ["Idle"]);
    Ok(())
}

#[tokio::test]
async fn an_idle_timeout_where_no_gate_sees_a_session_is_refused() -> Result<()> {
    let whole = Whole::start("no-idle").await?;
    let mut template = gate_template();
    template.metadata.name = Some(IDLE.to_owned());
    let config = &mut template.spec.access_config;
    config.idle_timeout = Some("10m".to_owned());
    config.sessions = oz_api::Sessions::Required;
    let why = refused(whole.scene.template(&template).await)?;
    assert!(
        why.contains("must be omitted unless sessions is Gate"),
        "{why}"
    );
    Ok(())
}
