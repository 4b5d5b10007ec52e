//! Open sessions in a pod of the real node, seen from both ends: the kubectl of the user, and the processes,
//! which are processes of this machine too.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

/// Returns the same command line on a separate terminal, by script(1).
#[must_use]
pub fn on_a_terminal(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<String> = words
        .map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")))
        .collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command"]);
    script.arg(quoted.join(" ")).arg("/dev/null");
    for (name, value) in command.get_envs() {
        script.env(name, value.unwrap_or_default());
    }
    script
}

/// An open session. Its kubectl is killed when this value is dropped.
#[derive(Debug)]
pub struct Session {
    kubectl: u32,
    stdin: Option<ChildStdin>,
    ended: Receiver<Timestamp>,
}

impl Session {
    /// Starts a session with a command that prints `here` when it has started, and waits for that.
    ///
    /// # Errors
    /// When the session ends before; the message contains its output.
    pub fn open(command: Command) -> Result<Self> {
        Self::open_saying(command, "here")
    }

    /// Starts a session like [`Session::open`] with a command that prints another line when it has started.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_saying(mut command: Command, word: &str) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                return Err(failed(child));
            }
        }
        let kubectl = child.id();
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            // The rest of the output is read, so that the command does not block on it.
            let _ = output.read_to_end(&mut Vec::new());
            let _ = child.wait();
            let _ = tell.send(Timestamp::now());
        });
        Ok(Self {
            kubectl,
            stdin,
            ended,
        })
    }

    /// Waits for the end of the session, and returns its time for the user.
    ///
    /// # Errors
    /// When it takes longer than `patience`.
    pub fn ended(&self, patience: Duration) -> Result<Timestamp> {
        let ended = self.ended.recv_timeout(patience);
        ended.context("the session did not end")
    }

    /// Sends a line to its command.
    ///
    /// # Errors
    /// When the command no longer reads.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("no standard input")?;
        stdin.write_all(format!("{line}\n").as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// Checks whether the session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ended.try_recv().is_err()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if self.is_open()
            && let Some(pid) = i32::try_from(self.kubectl)
                .ok()
                .and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn failed(mut child: Child) -> anyhow::Error {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    anyhow::anyhow!("the session ended: {said}")
}

/// Returns the grants of which processes run on this machine now, by the UIDs of their requests.
///
/// # Errors
/// When /proc does not exist, or cannot be read.
pub fn running_grants() -> Result<BTreeSet<String>> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root sees the owners of these processes"
    );
    let mark = format!("{}=", oz_core::connect::cut::MARK);
    let mut grants = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        let entries = environment.split(|byte| *byte == 0);
        let marks = entries.filter_map(|entry| entry.strip_prefix(mark.as_bytes()));
        grants.extend(marks.map(|grant| String::from_utf8_lossy(grant).into_owned()));
    }
    Ok(grants)
}
