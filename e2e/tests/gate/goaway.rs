//! An API server that closes HTTP/2 connections at random, which balances the load of several: the cluster of this
//! suite runs with `--goaway-chance`. Twenty sessions and patches; 200 in the long form (`OZ_LONG=1`).

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Result, ensure};
use oz_api::{DebugConfig, Operation};
use oz_e2e::{GATED, exec_request, gate_template, records_in};
use oz_testkit::{fixtures, scaled};
use oz_trail::Action;

use crate::Whole;
use crate::passing::said;

/// Runs a command off the threads that the operator's watchers share, and returns its output.
async fn run(mut command: Command) -> Result<String> {
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "{}", said(&output));
    Ok(said(&output))
}

/// See <https://github.com/gravitational/teleport/issues/57766>.
#[tokio::test]
async fn goaway_of_api_server_fails_no_session_and_no_patch() -> Result<()> {
    let mut template = gate_template();
    let config = &mut template.spec.access_config;
    config.operations = vec![Operation::Exec, Operation::Debug];
    config.debug = Some(DebugConfig {
        images: vec![fixtures::IMAGE.to_owned()],
    });
    let whole = Whole::with("goaway", &template).await?;
    let scene = &whole.scene;
    scene.people_may_look().await?;
    let count = scaled(20, 200);
    let target = format!("template/{GATED}");
    for number in 0..count {
        let words = [
            "exec",
            "--no-stdin",
            &target,
            "--reason",
            "test",
            "--",
            "echo",
            "inside",
        ];
        let said = run(scene.ozctl("alice", &words)?).await?;
        ensure!(said == "inside\n", "session {number}: {said}");
    }

    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "30m")).await?;
    let pod = granted.pod();
    for number in 0..count {
        let container = format!("--container=added-{number}");
        let image = format!("--image={}", fixtures::IMAGE);
        let words = ["debug", &pod, "--attach=false", &image, &container];
        run(scene.through_gate("alice", "mine", &words)).await?;
    }

    let mut grants: BTreeMap<String, usize> = BTreeMap::new();
    for record in records_in(&whole.system.operator.process)? {
        if record.action == Action::AccessGranted && record.request.namespace == scene.name() {
            *grants.entry(record.request.uid).or_default() += 1;
        }
    }
    ensure!(grants.len() > count, "{} grants for {count}", grants.len());
    let twice = grants.values().filter(|number| **number > 1).count();
    assert_eq!(twice, 0, "{grants:?}");
    Ok(())
}
