//! What changes, as it changes.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use oz_e2e::{Scene, TEMPLATE, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};
use serde_json::Value;

use crate::scene;

/// A watch whose output goes to files; it ends with this.
struct Watch {
    child: Child,
    directory: tempfile::TempDir,
}

impl Watch {
    async fn start(scene: &Scene, words: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| File::create(directory.path().join(name));
        let child = Command::new(cargo_binary("ozctl")?)
            .args(["-n", scene.name(), "watch"])
            .args(words)
            .env("KUBECONFIG", scene.cluster.kubeconfig("admin"))
            .stdin(Stdio::null())
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .spawn()?;
        let watch = Self { child, directory };
        eventually("the watch to begin", CONDITION_TIMEOUT, async || {
            let said = watch.read("stderr")?;
            Ok(said.contains("watching").then_some(()))
        })
        .await?;
        Ok(watch)
    }

    fn read(&self, name: &str) -> Result<String> {
        let path: &Path = self.directory.path();
        Ok(std::fs::read_to_string(path.join(name))?)
    }

    /// Waits for a line with all of these.
    async fn shows(&self, words: &[&str]) -> Result<String> {
        let what = format!("a line with {words:?}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let said = self.read("stdout")?;
            let mut lines = said.lines();
            let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
            Ok(found.map(ToOwned::to_owned))
        })
        .await
    }

    /// Ctrl-C, and how it ended.
    fn interrupted(mut self) -> Result<Option<i32>> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status()?;
        ensure!(sent.success(), "no signal was sent");
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_request_is_shown_from_its_grant_to_its_end() -> Result<()> {
    let scene = scene("watch").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("before", TEMPLATE, "10m"))
        .await?;
    let text = Watch::start(&scene, &[]).await?;
    let json = Watch::start(&scene, &["-o", "json"]).await?;
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
    assert_eq!(change["who"], "alice");
    ensure!(change["until"].is_string(), "{line}");
    alice.api().delete("mine", &DeleteParams::default()).await?;
    json.shows(&["\"mine\"", "\"deleted\":true"]).await?;
    text.shows(&["ExecAccessRequest mine", "Deleted"]).await?;
    // What was there before is not told of, and nothing is told twice.
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
async fn what_may_not_be_listed_is_left_out_and_said() -> Result<()> {
    let scene = scene("watch-less").await?;
    let mut command = crate::ozctl(&scene, "mallory", &["watch", "-A"])?;
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8(output.stderr)?;
    ensure!(!output.status.success(), "{said}");
    ensure!(said.contains("AccessLock: not watched"), "{said}");
    said.lines().last().context("nothing was said")?;
    Ok(())
}
