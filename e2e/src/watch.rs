//! `ozctl watch` as a process; tests read its output while it runs.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};

use crate::scene::Scene;

/// A watch with its output in files; its process ends with this value.
pub struct Watch {
    child: Child,
    directory: tempfile::TempDir,
}

impl Watch {
    /// Starts a watch as a user, in the scene's namespace, and waits until it watches.
    ///
    /// # Errors
    /// When it does not begin.
    pub async fn start(scene: &Scene, user: &str, words: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| File::create(directory.path().join(name));
        let child = Command::new(cargo_binary("ozctl")?)
            .args(["-n", scene.name(), "watch"])
            .args(words)
            .env("KUBECONFIG", scene.cluster.kubeconfig(user))
            .stdin(Stdio::null())
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .spawn()?;
        let watch = Self { child, directory };
        eventually("the watch to begin", CONDITION_TIMEOUT, async || {
            let said = watch.read("stderr")?;
            Ok(said.contains("watching; ").then_some(()))
        })
        .await?;
        Ok(watch)
    }

    /// Returns its output so far on `stdout` or `stderr`.
    ///
    /// # Errors
    /// When the output cannot be read.
    pub fn read(&self, name: &str) -> Result<String> {
        let path: &Path = self.directory.path();
        Ok(std::fs::read_to_string(path.join(name))?)
    }

    /// Waits for a line with all of these words on its standard output.
    ///
    /// # Errors
    /// When no such line is written in time.
    pub async fn shows(&self, words: &[&str]) -> Result<String> {
        self.says("stdout", words).await
    }

    /// Waits for such a line on `stdout` or `stderr`.
    ///
    /// # Errors
    /// When no such line is written in time.
    pub async fn says(&self, name: &str, words: &[&str]) -> Result<String> {
        let what = format!("a line with {words:?} on {name}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let said = self.read(name)?;
            let mut lines = said.lines();
            let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
            ensure!(found.is_some(), "{said}");
            Ok(found.map(ToOwned::to_owned))
        })
        .await
    }

    /// Sends Ctrl-C, and returns the exit code.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn interrupted(mut self) -> Result<Option<i32>> {
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
