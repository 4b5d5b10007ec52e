//! The users of the story and their commands. The commands are shown as typed, and are run.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use oz_testkit::Cluster;
use tokio::process::Command;

/// A user at a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Person<'a> {
    pub(crate) name: &'static str,
    pub(crate) cluster: &'a Cluster,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Command as typed.
    pub(crate) command: String,
    pub(crate) succeeded: bool,
    /// Output of the command, on either stream.
    pub(crate) text: String,
}

impl Person<'_> {
    /// Runs kubectl with these arguments.
    pub(crate) async fn kubectl(self, arguments: &[&str]) -> Result<Answer> {
        let command = Command::from(self.cluster.kubectl(self.name));
        self.types("kubectl", command, arguments).await
    }

    /// Runs ozctl with these arguments, from the directory of this program.
    pub(crate) async fn ozctl(self, arguments: &[&str]) -> Result<Answer> {
        let program = std::env::current_exe().context("failed to find this program")?;
        let mut command = Command::new(program.with_file_name("ozctl"));
        command
            .env("KUBECONFIG", self.cluster.kubeconfig(self.name))
            .env("USER", self.name);
        self.types("ozctl", command, arguments).await
    }

    async fn types(self, name: &str, mut command: Command, arguments: &[&str]) -> Result<Answer> {
        let output = command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("failed to run {name}"))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let typed: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        Ok(Answer {
            command: format!("{name} {}", typed.join(" ")),
            succeeded: output.status.success(),
            text: text.trim().to_owned(),
        })
    }

    /// Runs `kubectl auth can-i`: checks whether the user may open an exec session in the pod.
    pub(crate) async fn may_exec(self, namespace: &str, pod: &str) -> Result<Answer> {
        let pod = format!("pods/{pod}");
        let arguments = [
            "auth",
            "can-i",
            "create",
            &pod,
            "--subresource=exec",
            "-n",
            namespace,
        ];
        let answer = self.kubectl(&arguments).await?;
        let yes = answer.text.lines().any(|line| line == "yes");
        ensure!(
            yes == answer.succeeded,
            "{}: {}",
            answer.command,
            answer.text
        );
        Ok(answer)
    }

    /// Runs `kubectl exec` of a shell command.
    pub(crate) async fn exec(self, namespace: &str, pod: &str, script: &str) -> Result<Answer> {
        self.kubectl(&["exec", "-n", namespace, pod, "--", "sh", "-c", script])
            .await
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_is_quoted_only_when_a_shell_would_split_it() {
        assert_eq!(quoted("--subresource=exec"), "--subresource=exec");
        assert_eq!(quoted("echo $$"), "'echo $$'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
