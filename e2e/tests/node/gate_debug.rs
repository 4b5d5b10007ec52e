//! `kubectl debug` through the gate on a real node: the container runs, the user attaches to it, and its processes end
//! with the grant where it shares those of another container.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use oz_api::{DebugConfig, Operation};
use oz_e2e::{
    GATED, Gate, Options, Scene, System, Terminal, exec_request, gate_template, records_in,
    running_grants,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use oz_trail::Action;

use crate::alone;

fn debug(scene: &Scene, request: &str, pod: &str, words: &[&str]) -> Command {
    let start = ["debug", pod, "--image", fixtures::IMAGE];
    scene.through_gate("alice", request, &[&start, words].concat())
}

/// Sends these bytes to a command, returns as many bytes of its output, and kills it.
pub(crate) fn answered(mut command: Command, said: &[u8]) -> Result<Vec<u8>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let output = child.stdout.take().context("no standard output")?;
    input.write_all(said)?;
    let mut heard = Vec::new();
    let length = u64::try_from(said.len())?;
    output.take(length).read_to_end(&mut heard)?;
    child.kill()?;
    child.wait()?;
    Ok(heard)
}

#[tokio::test]
async fn debug_container_is_attached_and_ends_with_grant() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let options = Gate::operator_options().cutting();
    let system = System::start_with(cluster, &options).await?;
    let gate = Gate::start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "debug").await?;
    scene.enforce().await?;
    let mut template = gate_template();
    let config = &mut template.spec.access_config;
    config.operations = vec![Operation::Debug];
    config.debug = Some(DebugConfig {
        images: vec![fixtures::IMAGE.to_owned()],
    });
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "10m")).await?;
    let pod = granted.pod();

    // Each byte returns unchanged, with the future default profile of kubectl and with another.
    for profile in ["general", "baseline"] {
        let profile = format!("--profile={profile}");
        let words = ["-i", "--quiet", &profile, "--", "cat"];
        let said = b"hello\0\xff\nyou\n";
        eventually("a container that answers", CONDITION_TIMEOUT, async || {
            let heard = answered(debug(&scene, "mine", &pod, &words), said)?;
            Ok((heard == said).then_some(()))
        })
        .await?;
    }

    let short = alice.granted(&exec_request("short", GATED, "60s")).await?;
    let uid = short.request.uid().context("no UID")?;
    let target = format!("--target={}", fixtures::CONTAINER);
    let shell = debug(&scene, "short", &short.pod(), &["-it", &target, "--", "sh"]);
    let mut terminal = Terminal::start(&shell, 33, 101)?;
    // The shell reads input from before its start as well.
    terminal.is_sized(33, 101).await?;
    terminal.keys("tr '\\0' ' ' < /proc/1/cmdline; echo is''first\r")?;
    terminal.shows("isfirst").await?;
    ensure!(running_grants()?.contains(&uid));
    terminal.shows("ended at").await?;
    eventually("its processes to end", CONDITION_TIMEOUT, async || {
        Ok((!running_grants()?.contains(&uid)).then_some(()))
    })
    .await?;

    let opened = records_in(&system.webhook.process)?;
    let ways = |request: &str| {
        let of_it = opened.iter().filter(|one| {
            one.action == Action::SessionOpened
                && one.request.name == request
                && one.request.namespace == scene.name()
        });
        of_it
            .filter_map(|one| one.details.get("way").cloned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ways("short"), ["ephemeral container", "attach"]);
    let cut = records_in(&gate.process)?;
    ensure!(
        cut.iter()
            .any(|one| one.action == Action::SessionTerminated && one.reason == "Expired")
    );
    Ok(())
}
