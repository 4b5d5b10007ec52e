//! The volumes of a run's pod as folders, the container as a process, and the test as the agent.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::broker::Broker;

/// The deadline of a wait in a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `check` gives something, and says what it saw last if it never does.
pub(crate) fn eventually<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(last) if begun.elapsed() > DEADLINE => panic!("{what} did not come; last: {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

pub(crate) struct World {
    directory: TempDir,
    /// Set before the container's program, as a shell's commands.
    pub(crate) limits: &'static str,
    pub(crate) prompt_comes_from_broker: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["paddock/prompt", "workspace"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        fs::write(Broker::token(directory.path()), "token-1\n").unwrap();
        Self {
            directory,
            limits: "",
            prompt_comes_from_broker: true,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of the transcript.
    pub(crate) fn transcript(&self, name: &str) -> PathBuf {
        self.path("workspace/.paddock/runs/hello").join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn events(&self) -> String {
        fs::read_to_string(self.transcript("events.jsonl")).unwrap_or_default()
    }

    /// Waits until an event with this in it stands in the transcript.
    pub(crate) fn has_event(&self, text: &str) {
        eventually(&format!("an event of {text}"), || {
            let events = self.events();
            match events.contains(text) {
                true => Ok(()),
                false => Err(events),
            }
        });
    }

    pub(crate) fn raw(&self) -> PathBuf {
        self.path("paddock/raw/out")
    }

    /// Writes a line as an agent does with `>> "$PADDOCK_RAW_PATH"`.
    pub(crate) fn say(&self, line: impl AsRef<[u8]>) {
        let mut file = OpenOptions::new().append(true).open(self.raw()).unwrap();
        file.write_all(line.as_ref()).unwrap();
        file.write_all(b"\n").unwrap();
    }

    fn command(&self, verb: &str, broker: &Broker) -> Command {
        let mut command = Command::new("/bin/bash");
        let script = format!("{} exec \"$0\" {verb}", self.limits);
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_oz-harness")])
            .env_clear()
            .env("PADDOCK_MODE", "Batch")
            .env("PADDOCK_RAW_PATH", self.raw())
            .env(
                "PADDOCK_PROMPT_FILE",
                self.path("paddock/prompt/prompt.txt"),
            )
            .env("PADDOCK_RUN_NAME", "hello")
            .env("PADDOCK_RUN_NAMESPACE", "team")
            .env("PADDOCK_WORKSPACE_NAME", "demo")
            .env("PADDOCK_TEMPLATE_NAME", "echo-default")
            .env("PADDOCK_HARNESS_IMAGE", "echo:1")
            .env("PADDOCK_TRANSCRIPT_DIR", self.transcript(""))
            .env("PADDOCK_BROKER_URL", &broker.url)
            .env("PADDOCK_BROKER_TOKEN_PATH", self.path("token"))
            .env("OZ_BROKER_CA", &broker.ca)
            .env("OZ_WORKSPACE", self.path("workspace"))
            .env("OZ_FETCH_PROMPT", self.prompt_comes_from_broker.to_string())
            .env("OZ_RECENT_EVENTS", "20")
            .env("OZ_TERMINATION_LOG", self.path("termination-log"));
        command
    }

    /// Starts the container; it appends to the log of its predecessor.
    pub(crate) fn start(&self, verb: &str, broker: &Broker) -> Container {
        let log = |name: &str| -> File {
            let mut options = OpenOptions::new();
            options
                .append(true)
                .create(true)
                .open(self.path(name))
                .unwrap()
        };
        let output = self
            .command(verb, broker)
            .stdout(Stdio::piped())
            .stderr(log("stderr"))
            .spawn();
        let mut child = output.unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut stdout = log("stdout");
        // Through a pipe, as the kubelet reads it.
        let reader = std::thread::spawn(move || {
            std::io::copy(&mut output, &mut stdout).unwrap();
        });
        Container {
            child,
            reader: Some(reader),
        }
    }

    pub(crate) fn is_ready(&self, broker: &Broker) -> bool {
        let output = self.command("ready", broker).output().unwrap();
        output.status.success()
    }

    /// Starts the container and waits until the agent may start.
    pub(crate) fn started(&self, verb: &str, broker: &Broker) -> Container {
        let mut container = self.start(verb, broker);
        eventually("readiness", || {
            assert_eq!(
                container.child.try_wait().unwrap(),
                None,
                "{}",
                self.read("stderr")
            );
            match self.is_ready(broker) {
                true => Ok(()),
                false => Err(self.read("stderr")),
            }
        });
        container
    }
}

pub(crate) struct Container {
    child: Child,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Container {
    pub(crate) fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        let status = eventually("the end of the container", || {
            self.child.try_wait().unwrap().ok_or_else(String::new)
        });
        self.reader.take().unwrap().join().unwrap();
        status
    }

    /// Ends the container as the kubelet does after the end of the agent.
    pub(crate) fn end(self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
