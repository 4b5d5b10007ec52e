//! The gate on a real node, with an unmodified kubectl: the data of a session, and its end at its second with the
//! operator down.

use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use oz_api::{RecordingConfig, RecordingMode};
use oz_e2e::{
    GATED, Gate, Options, RecordingStore, STREAMS, Scene, Session, System, Terminal, exec_request,
    gate_template, on_a_terminal, recording_template, records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use crate::alone;
use crate::exec::with_input;

pub(crate) fn said(output: &Output) -> String {
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
    template.spec.access_config.operations = STREAMS.to_vec();
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
    // The output of a command arrives, although the command reads only a part of its input.
    for _ in 0..5 {
        let head = through("mine", &["exec", "-i", &pod, "--", "head", "-c", "5"]);
        let head = with_input(head, &input[..60_000])?;
        assert_eq!(head.stdout, input[..5], "{}", said(&head));
    }
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
    eprintln!("closed {:#} after its end", ended.duration_since(until));
    let cut = eventually("the end on record", CONDITION_TIMEOUT, async || {
        let records = records_in(&gate.process)?;
        let mut records = records.into_iter();
        Ok(records
            .find(|one| one.action == Action::SessionTerminated && one.request.name == "short"))
    })
    .await?;
    assert_eq!(cut.reason, "Expired");
    assert!(cut.time >= until, "{} {until}", cut.time);
    Ok(())
}

#[tokio::test]
async fn terminal_recording_omits_hidden_input() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "terminal").await?;
    let required = RecordingConfig {
        mode: RecordingMode::Required,
        ..RecordingConfig::default()
    };
    scene.template(&recording_template(required)).await?;
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let shell = scene.through_gate("alice", "mine", &["exec", "-it", &pod, "--", "sh"]);
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let there = scene.through_gate("alice", "mine", &["exec", &pod, "--", "true"]);
        Ok({ there }.output()?.status.success().then_some(()))
    })
    .await?;
    let mut terminal = Terminal::start(&shell, 33, 101)?;
    terminal.is_sized(33, 101).await?;
    terminal.resize(20, 80)?;
    terminal.keys(
        "stty -echo; printf 'Pass''word: '; read secret; stty echo; printf 'thank ''you\\n'\r",
    )?;
    terminal.shows("Password: ").await?;
    terminal.keys("hunter2\r")?;
    terminal.shows("thank you").await?;
    terminal.interrupts().await?;
    terminal.keys("exit 7\r")?;

    eventually("the recording", CONDITION_TIMEOUT, async || {
        let mut records = records_in(&gate.process)?;
        records.retain(|one| {
            let with_code = one.action == Action::SessionEnded
                && one.details.get("exitCode") == Some(&"7".to_owned());
            with_code || one.action == Action::SessionRecorded
        });
        let ended = records.iter().any(|one| one.action == Action::SessionEnded);
        Ok((ended && records.len() >= 3).then_some(()))
    })
    .await
    .with_context(|| terminal.screen())?;
    let store = kept.store();
    let from = store.to_str().context("a path")?;
    let transcript = eventually(
        "the recording to be stored",
        CONDITION_TIMEOUT,
        async || {
            let output = scene
                .ozctl("admin", &["sessions", "transcript", "mine", "--from", from])?
                .output()?;
            Ok(said(&output).contains("thank you").then(|| said(&output)))
        },
    )
    .await?;
    for shown in ["sized 33 101", "Password:", "exit 7"] {
        ensure!(transcript.contains(shown), "{transcript}");
    }
    let lines = lines_of(&store)?;
    ensure!(!lines.contains("hunter2"), "{lines}");
    for kept in [
        "characters not shown",
        "exit 7",
        "\"r\",\"80x20\"",
        "with exit code 7",
    ] {
        ensure!(lines.contains(kept), "{kept}: {lines}");
    }
    Ok(())
}

/// Returns the lines of all parts below a directory.
fn lines_of(directory: &Path) -> Result<String> {
    let mut lines = String::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            lines.push_str(&lines_of(&path)?);
        } else if path.to_string_lossy().ends_with(".cast.zst") {
            let part = oz_recording::unpack(&std::fs::read(&path)?, 64 << 20)?;
            lines.push_str(&String::from_utf8(part)?);
        }
    }
    Ok(lines)
}
