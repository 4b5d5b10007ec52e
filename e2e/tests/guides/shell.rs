//! A shell that stays open while a reader follows a guide: a command sees the settings of earlier commands.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The timeout of a command.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);
/// The beginning of the line with the exit code of a command.
const END: char = '\u{1}';

/// A bash. It ends, with the processes that it started, when this is dropped.
pub(crate) struct Shell {
    bash: Child,
    stdin: ChildStdin,
    lines: Receiver<Vec<u8>>,
}

/// The result of a command.
pub(crate) struct Outcome {
    /// Both streams, in their order.
    pub(crate) printed: String,
    pub(crate) code: i32,
}

impl Shell {
    /// Starts a bash by `command`, which ends with the arguments for bash.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        command
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        let mut bash = command.spawn().context("failed to start bash")?;
        drop(command);
        let stdin = bash.stdin.take().context("no standard input")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut shell = Self { bash, stdin, lines };
        shell.types("set -o pipefail")?;
        Ok(shell)
    }

    /// Runs a command with any exit code.
    pub(crate) fn run(&mut self, command: &str) -> Result<Outcome> {
        self.types(&format!(
            "{{ {command}\n}} </dev/null 2>&1 && oz_code=0 || oz_code=$?"
        ))?;
        self.types(&format!("printf '\\n{END}%s\\n' \"$oz_code\""))?;
        self.outcome()
    }

    /// Runs a script in which every command must succeed: a failing command ends the shell.
    pub(crate) fn script(&mut self, script: &str) -> Result<Outcome> {
        self.types(&format!("set -e; {{ {script}\n}} </dev/null 2>&1; set +e"))?;
        self.types(&format!("printf '\\n{END}0\\n'"))?;
        self.outcome()
    }

    fn types(&mut self, text: &str) -> Result<()> {
        writeln!(self.stdin, "{text}").context("the shell has ended")
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let mut printed = Vec::new();
        loop {
            match self.lines.recv_timeout(STEP_TIMEOUT) {
                Ok(line) => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    let Some(code) = text.strip_prefix(END) else {
                        printed.push(text);
                        continue;
                    };
                    // The preceding line is empty, or the output that the command left without an end of line.
                    return Ok(Outcome {
                        printed: printed.join("\n"),
                        code: code.parse().context("no exit code")?,
                    });
                }
                Err(RecvTimeoutError::Timeout) => bail!(
                    "it did not end within {STEP_TIMEOUT:?}; it printed:\n{}",
                    printed.join("\n")
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "it failed, and with it the shell; it printed:\n{}",
                        printed.join("\n")
                    )
                }
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = i32::try_from(self.bash.id()).ok();
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.bash.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_command_sees_earlier_state_and_returns_exit_code() {
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]);
        let mut shell = Shell::start(command).unwrap();
        shell
            .script("greeting=hello\ngreet() { echo $greeting; }")
            .unwrap();
        let outcome = shell.run("greet; cat; (exit 3)").unwrap();
        assert_eq!((outcome.printed.trim_end(), outcome.code), ("hello", 3));
        assert_eq!(shell.run("printf half >&2").unwrap().printed, "half");
        assert!(shell.script("false\necho later").is_err());
        assert!(shell.run("echo gone").is_err());
    }
}
