//! Completion of the words of the plugin by kubectl, as a shell starts it.

use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use oz_testkit::{Cluster, cargo_binary};

#[tokio::test]
async fn kubectl_completes_words_of_plugin() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let ozctl = cargo_binary("ozctl")?;
    let directory = tempfile::tempdir()?;
    for name in ["kubectl-oz", "kubectl_complete-oz"] {
        symlink(&ozctl, directory.path().join(name))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(directory.path().to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path)?;
    // These candidates require no cluster, for which the completion waits only two seconds.
    for (words, candidate) in [
        (["oz", "templ"].as_slice(), "templates"),
        (&["oz", "exec", "--reas"], "--reason"),
        (&["oz", "get", "execaccessr"], "execaccessrequests"),
    ] {
        let mut kubectl = cluster.kubectl("alice");
        kubectl.env("PATH", &path).arg("__complete").args(words);
        let answer = tokio::task::spawn_blocking(move || kubectl.output()).await??;
        let shown = String::from_utf8(answer.stdout)?;
        let mut lines = shown.lines();
        ensure!(lines.next_back() == Some(":4"), "{words:?}: {shown}");
        let mut values = lines.map(|line| line.split('\t').next());
        let offered = values.any(|value| value == Some(candidate));
        ensure!(offered, "{words:?}: {shown}");
    }
    Ok(())
}
