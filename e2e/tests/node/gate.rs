//! The gate on a real node, with kubectl as it is: what a session carries, and that it ends at its second with the
//! operator dead.

use std::process::Output;

use anyhow::{Context as _, Result};
use oz_core::api::Operation;
use oz_core::audit::Action;
use oz_e2e::{
    GATED, Gate, Options, Scene, Session, System, exec_request, gate_template, on_a_terminal,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::alone;
use crate::exec::with_input;

fn said(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams
        .map(|stream| String::from_utf8_lossy(stream))
        .concat()
}

#[tokio::test]
async fn a_session_through_the_gate_is_what_it_is_without_and_ends_without_an_operator()
-> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let mut system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "gate").await?;
    let mut template = gate_template();
    template.spec.access_config.operations = vec![
        Operation::Exec,
        Operation::Attach,
        Operation::PortForward,
        Operation::Log,
    ];
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let pod = granted.pod();
    let through = |request: &str, words: &[&str]| scene.through_gate("alice", request, words);

    let seven = eventually("the exit code", CONDITION_TIMEOUT, async || {
        let output = through("mine", &["exec", &pod, "--", "sh", "-c", "exit 7"]).output()?;
        Ok((output.status.code() == Some(7)).then_some(output))
    })
    .await?;
    assert_eq!(seven.stdout, b"");
    let input: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let cat = with_input(through("mine", &["exec", "-i", &pod, "--", "cat"]), &input)?;
    assert!(cat.stdout == input, "{} bytes came back", cat.stdout.len());
    let terminal = on_a_terminal(&through("mine", &["exec", "-it", &pod, "--", "tty"])).output()?;
    assert!(said(&terminal).contains("/dev/"), "{}", said(&terminal));
    let logs = through("mine", &["logs", &pod]).output()?;
    assert!(logs.status.success(), "{}", said(&logs));

    let short = alice.granted(&exec_request("short", GATED, "20s")).await?;
    let until = short.status().expires_at.context("no end")?;
    let command = [
        "exec",
        "-i",
        &short.pod(),
        "--",
        "sh",
        "-c",
        "echo here; exec cat",
    ];
    let session = eventually("a session", CONDITION_TIMEOUT, async || {
        Ok(Session::open(through("short", &command)).ok())
    })
    .await?;
    system.operator.process.kill9();
    let ended = session.ended(CONDITION_TIMEOUT)?;
    println!("closed {:#} after its end", ended.duration_since(until));
    let cut = eventually("the end on record", CONDITION_TIMEOUT, async || {
        let records = records_in(&gate.process)?;
        let mut records = records.into_iter();
        Ok(records.find(|one| one.action == Action::SessionCut && one.request.name == "short"))
    })
    .await?;
    assert_eq!(cut.reason, "Expired");
    assert!(cut.time >= until, "{} {until}", cut.time);
    Ok(())
}
