//! `ozctl` into real containers: streams, exit codes, a terminal, the end of access.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use kube::api::ListParams;
use oz_api::{ExecAccessRequest, Operation, TargetKind};
use oz_e2e::{Scene, System, Terminal, WORKLOAD, exec_template};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};

use crate::alone;

async fn set(cluster: &'static oz_testkit::Cluster) -> Result<Scene> {
    let scene = Scene::set(cluster, "ozctl").await?;
    scene.people_may_look().await?;
    Ok(scene)
}

fn ozctl(scene: &Scene, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", scene.name()])
        .args(words)
        .env("KUBECONFIG", scene.cluster.kubeconfig("alice"))
        .env("USER", "alice");
    Ok(command)
}

/// Runs ozctl with this input, off the threads that the operator's watchers share.
async fn run(scene: &Scene, words: &[&str], input: &[u8]) -> Result<Output> {
    let mut command = ozctl(scene, words)?;
    let input = input.to_vec();
    let output = tokio::task::spawn_blocking(move || -> Result<Output> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        let feeding = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        let _ = feeding.join();
        Ok(output)
    });
    output.await?
}

async fn nothing_is_left(scene: &Scene) -> Result<()> {
    let requests = scene.api::<ExecAccessRequest>();
    let left = requests.list(&ListParams::default()).await?.items;
    anyhow::ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn a_pipeline_has_the_commands_streams_and_exit_code() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    let words = [
        "exec",
        "deploy/web",
        "--",
        "sh",
        "-c",
        "echo out; echo aside >&2; exit 42",
    ];
    let said = run(&scene, &words, b"").await?;
    assert_eq!(said.status.code(), Some(42), "{said:?}");
    assert_eq!(said.stdout, b"out\n");
    assert_eq!(said.stderr, b"aside\n");

    let input: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let echoed = run(&scene, &["exec", "deploy/web", "--", "cat"], &input).await?;
    assert!(
        echoed.status.success(),
        "{}",
        String::from_utf8_lossy(&echoed.stderr)
    );
    assert!(
        echoed.stdout == input,
        "{} bytes came back",
        echoed.stdout.len()
    );

    let missing = run(&scene, &["exec", "deploy/web", "--", "nonesuch"], b"").await?;
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    nothing_is_left(&scene).await?;

    // The test asserts nothing about the duration; `cargo xtask bench exec` measures it.
    let began = Instant::now();
    let quick = run(&scene, &["exec", "deploy/web", "--", "true"], b"").await?;
    let took = began.elapsed().as_millis();
    assert!(quick.status.success());
    writeln!(
        std::io::stderr(),
        "ozctl exec -- true took {took} ms in this build"
    )?;
    Ok(())
}

#[tokio::test]
async fn a_session_on_a_terminal_has_its_size_its_keys_and_its_exit_code() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    // A second template has the same target: at a terminal ozctl asks which one to use.
    scene
        .template(&exec_template("other", TargetKind::Deployment, WORKLOAD))
        .await?;
    let mut session = Terminal::start(&ozctl(&scene, &["exec", "deploy/web"])?, 30, 100)?;
    session.shows("Which one (1-2)? ").await?;
    session.keys("2\r")?;
    session.shows("# ").await?;
    session.shows(" left\x07").await?;

    session.is_sized(30, 100).await?;
    session.resize(40, 120)?;
    session.is_sized(40, 120).await?;
    session.interrupts().await?;
    session.keys("exit 5\r")?;
    assert_eq!(session.code().await?, 5, "{}", session.screen());
    assert!(session.is_as_before()?);
    nothing_is_left(&scene).await
}

#[tokio::test]
async fn session_shows_warning_of_expiry_and_ends() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    let words = ["exec", "deploy/web", "--duration", "20s"];
    let mut session = Terminal::start(&ozctl(&scene, &words)?, 30, 100)?;
    session.shows("# ").await?;
    session
        .shows("expires in 10s; `ozctl extend alice-")
        .await?;
    assert_eq!(session.code().await?, 124, "{}", session.screen());
    assert!(
        session
            .screen()
            .contains("has expired; `ozctl exec` creates a new request"),
        "{}",
        session.screen()
    );
    assert!(session.is_as_before()?);
    Ok(())
}

#[tokio::test]
async fn followed_logs_and_forwarded_ports_end_with_their_access_and_say_so() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    let mut more = exec_template("more", TargetKind::Deployment, WORKLOAD);
    more.spec.access_config.operations = vec![Operation::Log, Operation::PortForward];
    scene.template(&more).await?;
    let pod = scene.pods[0].metadata.name.clone().context("no name")?;
    let target = format!("pod/{pod}");
    let words = ["logs", "-f", &target, "--duration", "12s"];
    let mut following = Terminal::start(&ozctl(&scene, &words)?, 30, 100)?;
    let words = ["port-forward", &target, "0:7000", "--duration", "12s"];
    let mut forwarding = Terminal::start(&ozctl(&scene, &words)?, 30, 100)?;
    forwarding.shows(" to port 7000 of pod ").await?;
    for (verb, session) in [("logs", &mut following), ("port-forward", &mut forwarding)] {
        assert_eq!(session.code().await?, 124, "{verb}: {}", session.screen());
        let said = format!("has expired; `ozctl {verb}` creates a new request");
        assert!(session.screen().contains(&said), "{}", session.screen());
    }
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_interrupted_leaves_no_access() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    scene
        .template(&exec_template("nowhere", TargetKind::Deployment, "missing"))
        .await?;
    // Ctrl-C while it waits.
    let mut waiting = Terminal::start(&ozctl(&scene, &["exec", "template/nowhere"])?, 30, 100)?;
    waiting.shows("oz: waiting for alice-").await?;
    waiting.keys("\x03")?;
    assert_eq!(waiting.code().await?, 130, "{}", waiting.screen());
    nothing_is_left(&scene).await?;
    // Ctrl-C while a command runs without a terminal there.
    let words = [
        "exec",
        "-T",
        "deploy/web",
        "--",
        "sh",
        "-c",
        "echo running; sleep 1000",
    ];
    let mut running = Terminal::start(&ozctl(&scene, &words)?, 30, 100)?;
    running.shows("running").await?;
    running.keys("\x03")?;
    assert_eq!(running.code().await?, 130, "{}", running.screen());
    nothing_is_left(&scene).await
}

#[tokio::test]
async fn files_logs_and_ports_go_through_as_the_template_allows() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = set(cluster).await?;
    let directory = tempfile::tempdir()?;
    let from = directory.path().join("from");
    std::fs::create_dir_all(from.join("deep"))?;
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(from.join("deep/file"), &content)?;
    let pod = scene.pods[0].metadata.name.clone().context("no name")?;
    let there = |path: &str| format!("pod/{pod}:{path}");
    let from_text = from.to_str().context("no path")?;
    let sent = run(&scene, &["cp", from_text, &there("/tmp/sent")], b"").await?;
    assert!(
        sent.status.success(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let back = directory.path().join("back");
    let back_text = back.to_str().context("no path")?;
    let fetched = run(&scene, &["cp", &there("/tmp/sent"), back_text], b"").await?;
    assert!(
        fetched.status.success(),
        "{}",
        String::from_utf8_lossy(&fetched.stderr)
    );
    assert!(std::fs::read(back.join("deep/file"))? == content);
    let missing = run(&scene, &["cp", &there("/tmp/nothing"), back_text], b"").await?;
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");

    let mut more = exec_template("more", TargetKind::Deployment, WORKLOAD);
    more.spec.access_config.operations = vec![Operation::Log, Operation::PortForward];
    scene.template(&more).await?;
    let logs = run(&scene, &["logs", &format!("pod/{pod}"), "--tail", "1"], b"").await?;
    assert!(
        logs.status.success(),
        "{}",
        String::from_utf8_lossy(&logs.stderr)
    );
    nothing_is_left(&scene).await?;

    let target = format!("pod/{pod}");
    let words = [
        "exec", "-T", &target, "--", "nc", "-ll", "-p", "7000", "-e", "echo", "hello",
    ];
    let _listening = Terminal::start(&ozctl(&scene, &words)?, 30, 100)?;
    let forwarding = ozctl(&scene, &["port-forward", &target, "0:7000"])?;
    let mut forwarding = Terminal::start(&forwarding, 30, 100)?;
    forwarding.shows(" to port 7000 of pod ").await?;
    let screen = forwarding.screen();
    let said = screen.split("Forwarding ").nth(1).context("no port")?;
    let address = said
        .split_whitespace()
        .next()
        .context("no port")?
        .to_owned();
    let heard = eventually("an answer from the pod", CONDITION_TIMEOUT, async || {
        let mut stream = tokio::net::TcpStream::connect(&address).await?;
        let mut heard = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut heard).await?;
        Ok((!heard.is_empty()).then_some(heard))
    });
    assert_eq!(heard.await?, "hello\n");
    forwarding.keys("\x03")?;
    assert_eq!(forwarding.code().await?, 130, "{}", forwarding.screen());
    Ok(())
}
