//! `ozctl audit` on a trail that oz has written: the output for an administrator, and the findings for an auditor about
//! a
//! trail that is complete, broken, or missing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use oz_e2e::{Auditor, Scene, System, TEMPLATE, exec_request, unregister};
use oz_testkit::{Cluster, cargo_binary};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::alone;
use crate::support::{clean, settled};

/// The result of `ozctl audit …` as an administrator.
struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn command(cluster: &Cluster, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .arg("audit")
        .args(words)
        .env("KUBECONFIG", cluster.kubeconfig("admin"))
        .env("NO_COLOR", "1");
    Ok(command)
}

fn audit(cluster: &Cluster, words: &[&str]) -> Result<Answer> {
    let output = command(cluster, words)?.output()?;
    Ok(Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// Returns the standard output of the command, if it succeeds.
fn read(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let answer = audit(cluster, words)?;
    ensure!(answer.code == Some(0), "{words:?}: {}", answer.stderr);
    Ok(answer.stdout)
}

#[tokio::test]
async fn a_trail_is_listed_shown_followed_and_exported() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    cargo_binary("ozctl")?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "read").await?;
    let mut tail = command(cluster, &["tail", "-n", scene.name()])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut tailed = BufReader::new(tail.stdout.take().context("no output")?).lines();
    // The head of the table: the command follows the trail from here on.
    let head = tailed.next().context("no head")??;
    assert!(head.contains("WRITER"), "{head}");

    let alice = scene.requests("alice").await?;
    let mallory = scene.requests("mallory").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let refused = mallory.create(&exec_request("hers", TEMPLATE, "5m")).await;
    assert!(refused.is_err());
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;

    let of = |words: &[&str]| -> Result<Vec<String>> {
        let words = [&["list", "-n", scene.name()], words].concat();
        let table = read(cluster, &words)?;
        Ok(table.lines().skip(1).map(ToOwned::to_owned).collect())
    };
    let granted = of(&["--action", "AccessGranted"])?;
    ensure!(granted.len() == 1, "{granted:?}");
    let pod = asked.pod();
    for part in ["alice", "Allow", "mine", &pod] {
        assert!(granted[0].contains(part), "{granted:?} lacks {part}");
    }
    assert_eq!(of(&["--pod", &pod, "--actor", "alice"])?, granted);
    assert_eq!(of(&["--grant", "mine"])?.len(), 2);
    assert_eq!(of(&["--since", "1h", "--grant", "mine"])?.len(), 2);
    assert_eq!(of(&["--until", "1h", "--grant", "mine"])?.len(), 0);
    assert_eq!(of(&["--decision", "Deny"])?.len(), 1);

    let text = read(
        cluster,
        &["list", "-n", scene.name(), "--grant", "mine", "-o", "json"],
    )?;
    let list: Vec<Value> = serde_json::from_str(&text)?;
    let actions: Vec<_> = list.iter().map(|one| &one["action"]).collect();
    assert_eq!(actions, ["RequestCreated", "AccessGranted"]);
    let csv = read(
        cluster,
        &[
            "export",
            "-n",
            scene.name(),
            "--actor",
            "alice",
            "-o",
            "csv",
        ],
    )?;
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].starts_with("time,user,action"), "{csv}");
    assert!(
        rows.iter().skip(1).all(|row| row.contains(",alice,")),
        "{csv}"
    );

    let event = auditor.events().list(&ListParams::default()).await?;
    let event = event
        .into_iter()
        .find(|event| event.data["spec"]["id"] == list[1]["id"])
        .context("no event")?;
    let shown = read(cluster, &["show", &event.name_any(), "--json"])?;
    assert_eq!(serde_json::from_str::<Value>(&shown)?, list[1]);
    let nothing = audit(cluster, &["show", "20200101t000000000000z-000000000000"])?;
    assert_eq!(nothing.code, Some(1));

    // The event arrived while the command followed the trail.
    let line = tailed
        .find(|line| {
            line.as_ref()
                .is_ok_and(|line| line.contains("AccessGranted"))
        })
        .context("not followed")??;
    assert!(line.contains("alice") && line.contains(&pod), "{line}");
    tail.kill()?;
    tail.wait()?;
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
#[tokio::test]
async fn trail_verification_distinguishes_whole_broken_and_empty_trail() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let files = tempfile::tempdir()?;
    let (pin, log) = (files.path().join("oz.pub"), files.path().join("trail"));
    let text = |path: &Path| path.display().to_string();
    let (pin, log) = (text(&pin), text(&log));
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "verify").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..3 {
        let request = exec_request(&format!("debug-{number}"), TEMPLATE, "5m");
        alice.granted(&request).await?;
    }
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;
    std::fs::write(&pin, read(cluster, &["keys"])?)?;
    std::fs::write(&log, read(cluster, &["export"])?)?;
    // No process writes any more: the trail does not change while it is verified.
    for process in [&mut system.operator.process, &mut system.webhook.process] {
        process.terminate(Duration::from_secs(30)).await?;
    }
    unregister(cluster)?;

    let verify = |words: &[&str]| audit(cluster, &[&["verify", "--key", &pin], words].concat());
    let whole = verify(&[])?;
    assert_eq!(whole.code, Some(0), "{}{}", whole.stdout, whole.stderr);
    assert!(whole.stdout.contains("Valid: "), "{}", whole.stdout);
    let offline = verify(&["--offline", "--log", &log])?;
    assert_eq!(
        offline.code,
        Some(0),
        "{}{}",
        offline.stdout,
        offline.stderr
    );
    let unpinned = audit(cluster, &["verify"])?;
    assert_eq!(unpinned.code, Some(0));
    assert!(
        unpinned.stderr.contains("pin them outside"),
        "{}",
        unpinned.stderr
    );

    let mut events = auditor.events().list(&ListParams::default()).await?.items;
    events.retain(|event| event.data["spec"]["action"] == "AccessGranted");
    let taken = events.get(1).context("no event")?;
    let seq = taken.data["spec"]["seq"].as_u64().context("no place")?;
    auditor
        .events()
        .delete(&taken.name_any(), &DeleteParams::default())
        .await?;
    let broken = verify(&[])?;
    assert_eq!(broken.code, Some(1));
    let first = broken.stdout.lines().find(|line| line.contains("First: "));
    let first = first.context("no first bad record")?;
    assert!(first.starts_with("NOT WHOLE"), "{first}");
    assert!(first.contains("Missing in oz-operator"), "{first}");
    assert!(first.contains(&format!("at {seq}")), "{first}");
    let json: Value = serde_json::from_str(&verify(&["-o", "json"])?.stdout)?;
    assert_eq!(json["verdict"], "Invalid");
    assert_eq!(json["problems"][0]["seq"], seq);

    let changed = std::fs::read_to_string(&log)?.replacen("\"alice\"", "\"mallory\"", 1);
    std::fs::write(&log, changed)?;
    let altered = verify(&["--offline", "--log", &log])?;
    assert_eq!(altered.code, Some(1));
    let place = format!("({log}:");
    assert!(
        altered.stdout.contains("First: Altered") && altered.stdout.contains(&place),
        "{}",
        altered.stdout
    );

    // Deletes all events and checkpoints: the trail is empty.
    clean(cluster).await?;
    let nothing = verify(&[])?;
    assert_eq!(
        nothing.code,
        Some(2),
        "{}{}",
        nothing.stdout,
        nothing.stderr
    );
    assert!(
        nothing.stdout.starts_with("NOTHING TO VERIFY"),
        "{}",
        nothing.stdout
    );
    let json: Value = serde_json::from_str(&verify(&["-o", "json"])?.stdout)?;
    assert_eq!(
        (&json["verdict"], &json["valid"]),
        (&"Empty".into(), &false.into())
    );
    Ok(())
}

#[tokio::test]
async fn record_written_during_verification_is_not_missing() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let files = tempfile::tempdir()?;
    let log = files.path().join("trail");
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "meanwhile").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("before", TEMPLATE, "5m"))
        .await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;
    let before = read(cluster, &["export"])?;

    // The log is a pipe: it opens as soon as the command reads it, and the command reads it once it is written.
    let made = Command::new("mkfifo").arg(&log).status()?;
    ensure!(made.success(), "no pipe");
    let words = ["verify", "--log", &log.display().to_string()];
    let verify = command(cluster, &words)?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut pipe = tokio::fs::OpenOptions::new().write(true).open(&log).await?;
    alice
        .granted(&exec_request("meanwhile", TEMPLATE, "5m"))
        .await?;
    settled(&auditor).await?;
    pipe.write_all(before.as_bytes()).await?;
    pipe.shutdown().await?;
    drop(pipe);
    let answer = tokio::task::spawn_blocking(|| verify.wait_with_output()).await??;
    let text = String::from_utf8(answer.stdout)?;
    ensure!(answer.status.success(), "{text}");
    Ok(())
}
