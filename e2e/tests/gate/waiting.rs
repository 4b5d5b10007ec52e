//! Sessions that wait for a moderator, as their users see them, and the end of a wait with its client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::exec_request;
use oz_gating::live::State;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use rustix::process::{Pid, Signal, kill_process};

use crate::Whole;
use crate::live::{listed, noted};
use crate::moderation::{MODERATED, Program, stands, template};
use crate::passing::said;

/// The notice to the user of a session that waits.
const NOTICE: &str = "oz: this session opens once a user of moderators";

/// A setup with alice's grant by a template that requires a moderator.
struct Granted {
    whole: Whole,
    pod: String,
    moderator: String,
}

impl Granted {
    async fn start(prefix: &str) -> Result<Self> {
        let whole = Whole::start(prefix).await?;
        let scene = &whole.scene;
        scene.may_moderate_sessions("moderators").await?;
        let moderator = format!("{}-moderators", scene.name());
        scene.template(&template(&["moderators"])).await?;
        let alice = scene.requests("alice").await?;
        let request = exec_request("mine", MODERATED, "10m");
        let pod = alice.granted(&request).await?.pod();
        eventually("alice to get in", CONDITION_TIMEOUT, async || {
            let command = ["get", "pod", &pod];
            let output = scene.through_gate("alice", "mine", &command).output()?;
            Ok(output.status.success().then_some(()))
        })
        .await?;
        Ok(Self {
            whole,
            pod,
            moderator,
        })
    }

    /// Returns a command that ends after a line: the simulated kubelet does not pass on the end of the input.
    fn kubectl(&self) -> Command {
        let command = ["exec", "-i", &self.pod, "--", "head", "-n", "1"];
        self.whole.scene.through_gate("alice", "mine", &command)
    }

    fn watch(&self) -> Result<Program> {
        let watch = ["sessions", "watch", "mine"];
        Program::start(self.whole.scene.ozctl(&self.moderator, &watch)?)
    }

    /// Waits until no session of the request is listed.
    async fn is_gone(&self) -> Result<()> {
        let scene = &self.whole.scene;
        eventually("no session", CONDITION_TIMEOUT, async || {
            let listing = listed(scene, &self.moderator)?;
            ensure!(listing.sessions.is_empty(), "{listing:?}");
            Ok(Some(()))
        })
        .await
    }
}

/// A client of a session that waits. It is killed when this is dropped.
struct Waiting(Child);

impl Waiting {
    /// Starts a client, and waits for the notice on its standard error.
    async fn start(mut command: Command) -> Result<Self> {
        let started = tokio::task::spawn_blocking(move || {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
            let (mut line, mut before) = (String::new(), String::new());
            while !line.contains(NOTICE) {
                before.push_str(&line);
                line.clear();
                if errors.read_line(&mut line)? == 0 {
                    let _ = child.wait();
                    anyhow::bail!("it ended: {before}");
                }
            }
            std::thread::spawn(move || {
                // The thread reads the further lines, so that the program does not block on them.
                let _ = errors.read_to_end(&mut Vec::new());
            });
            ensure!(line.contains("ozctl sessions watch mine"), "{line}");
            Ok(Self(child))
        });
        tokio::time::timeout(CONDITION_TIMEOUT, started)
            .await
            .context("no notice")??
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("no process")?, signal)?)
    }

    /// Sends a last line.
    fn types(&mut self, line: &str) -> Result<()> {
        let mut stdin = self.0.stdin.take().context("no standard input")?;
        Ok(stdin.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Returns the standard output of the program at its end.
    async fn output(mut self) -> Result<String> {
        let mut stdout = self.0.stdout.take().context("no standard output")?;
        let read = tokio::task::spawn_blocking(move || {
            let mut output = String::new();
            stdout.read_to_string(&mut output)?;
            Ok(output)
        });
        tokio::time::timeout(CONDITION_TIMEOUT, read)
            .await
            .context("it did not end")??
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn kubectl_and_ozctl_say_for_whom_a_session_waits_and_keep_their_input() -> Result<()> {
    let granted = Granted::start("says").await?;
    let scene = &granted.whole.scene;
    let target = format!("pod/{}", granted.pod);
    let ozctl = [
        "exec",
        &target,
        "--request",
        "mine",
        "--",
        "head",
        "-n",
        "1",
    ];
    for command in [granted.kubectl(), scene.ozctl("alice", &ozctl)?] {
        let program = format!("{command:?}");
        let mut waiting = Waiting::start(command).await?;
        waiting.types("typed during the wait")?;
        stands(scene, &granted.moderator, State::Waiting, 0).await?;
        let watching = granted.watch()?;
        let output = waiting.output().await;
        let output = output.with_context(|| program.clone())?;
        ensure!(output == "typed during the wait\n", "{program}: {output}");
        drop(watching);
        granted.is_gone().await?;
    }
    Ok(())
}

#[tokio::test]
async fn session_of_a_client_that_is_gone_does_not_wait() -> Result<()> {
    let granted = Granted::start("gone").await?;
    let (scene, gate) = (&granted.whole.scene, &granted.whole.gate);
    // A killed client closes its connection; a stopped one does not answer pings.
    for signal in [Signal::KILL, Signal::STOP] {
        let waiting = Waiting::start(granted.kubectl()).await?;
        stands(scene, &granted.moderator, State::Waiting, 0).await?;
        waiting.signal(signal)?;
        granted.is_gone().await?;
    }
    eventually("a record of each", CONDITION_TIMEOUT, async || {
        let ended = noted(gate, scene, Action::SessionEnded, &["NotOpened"]).await?;
        ensure!(ended.len() == 2, "{ended:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn session_that_is_ended_during_its_wait_says_why() -> Result<()> {
    let granted = Granted::start("why").await?;
    let scene = &granted.whole.scene;
    let mut command = granted.kubectl();
    let opening = tokio::task::spawn_blocking(move || command.output());
    stands(scene, &granted.moderator, State::Waiting, 0).await?;
    let end = ["sessions", "end", "mine", "--reason", "not today"];
    let ended = scene.ozctl(&granted.moderator, &end)?.output()?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let refused = tokio::time::timeout(CONDITION_TIMEOUT, opening).await???;
    let told = said(&refused);
    ensure!(!refused.status.success(), "{told}");
    let why = format!("{} terminated this session: not today", granted.moderator);
    ensure!(told.contains(&why), "{told}");
    Ok(())
}
