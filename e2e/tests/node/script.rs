//! The script that ends sessions, alone: in a separate PID namespace, with each shell that it is likely to meet.
//! `nsenter` takes the role of the runtime: a parent that is invisible inside.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use oz_core::connect::script::{self, Ended, Ending};
use oz_e2e::run;
use oz_testkit::{CONDITION_TIMEOUT, Node, eventually};

const SHELLS: [&[&str]; 3] = [&["dash"], &["busybox", "ash"], &["bash"]];
const ID: &str = "0b9f2a52-0001";
const WAITS: &str = "exec sleep 600";
const NOBODY: &str = "65534";

/// A container: processes that see only one another, and end with this value.
struct Container {
    whole: Child,
    /// PID 1, by its PID outside of the container.
    first: String,
    sessions: Vec<Child>,
}

impl Container {
    /// Starts a container with this application.
    async fn start(application: &str) -> Result<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        unshare.args(["bash", "-c", application]);
        let whole = unshare.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let children = format!("/proc/{0}/task/{0}/children", whole.id());
        let first = eventually("the application to start", CONDITION_TIMEOUT, async || {
            let first = std::fs::read_to_string(&children)?.trim().to_owned();
            // The application has its own /proc by then.
            let name = std::fs::read_to_string(format!("/proc/{first}/comm"));
            Ok(name.is_ok_and(|name| name != "unshare\n").then_some(first))
        })
        .await?;
        Ok(Self {
            whole,
            first,
            sessions: Vec::new(),
        })
    }

    /// Runs a command in the container as a runtime does.
    fn enter(&self, user: &str, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first, "-p", "-m", "-S", user, "-G", user]);
        command.arg("setsid").args(argv);
        command
    }

    /// Opens a session and waits until it reports its start; with the mark of the grant, or without.
    fn open(&mut self, user: &str, marked: bool, words: &str) -> Result<()> {
        // A command at the end makes the shell stay.
        let mut command = self.enter(user, &["bash", "-c", &format!("{words}\n:")]);
        if marked {
            command.env("OZ_GRANT", ID);
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = pipes.stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(session.stdout.take().context("no standard output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        session.stdout = Some(output.into_inner());
        self.sessions.push(session);
        ensure!(line == "here\n", "{line}");
        Ok(())
    }

    /// Runs the script, for a grant of a minute ago.
    fn end(&self, user: &str, shell: &[&str]) -> Result<Ended> {
        self.end_of(SignedDuration::from_secs(60), user, shell)
    }

    /// Runs the script, for a grant of this age.
    fn end_of(&self, age: SignedDuration, user: &str, shell: &[&str]) -> Result<Ended> {
        // Another grant without processes precedes it.
        let other = Ending {
            grant: "other",
            age,
        };
        let mut command = script::command(&[other, Ending { grant: ID, age }]);
        command[3] = shell.join(" ");
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let said = run(self.enter(user, &[shell, &command[1..]].concat()))?;
        script::answers(&said).remove(ID).context(said)
    }

    /// Returns the command lines of the running processes.
    fn running(&self) -> Result<String> {
        run(self.enter("0", &["ps", "-eo", "args"]))
    }

    /// Waits until this many processes run with this beginning of their command lines.
    async fn has(&self, what: &str, many: usize) -> Result<()> {
        eventually(what, CONDITION_TIMEOUT, async || {
            let running = self.running()?;
            let found = running.lines().filter(|line| line.starts_with(what));
            Ok((found.count() == many).then_some(()))
        })
        .await
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.whole.kill();
        let _ = self.whole.wait();
        for session in &mut self.sessions {
            // The session stops when the process that it waits for is stopped, and would wait forever.
            let mut wake = Command::new("kill");
            let _ = wake.args(["-CONT", &session.id().to_string()]).status();
            let _ = session.wait();
        }
    }
}

/// Runs these words in a session, and checks the result of the script.
async fn tried(words: &str, ended: Ended) -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    for shell in SHELLS {
        let mut container = Container::start(WAITS).await?;
        container.open("0", true, words)?;
        // Those in the background may still be about to become what they execute.
        let begun = words.matches("sleep 700").count();
        container.has("sleep 700", begun).await?;
        let seen = container.end("0", shell)?;
        assert_eq!(seen, ended, "{shell:?}: {}", container.running()?);
        let many = usize::try_from(ended.left)?;
        container.has("sleep 7", many).await?;
    }
    Ok(())
}

const fn ended(ended: u32, left: u32) -> Ended {
    Ended { ended, left }
}

#[tokio::test]
async fn a_name_that_looks_like_the_end_of_a_process_hides_none() -> Result<()> {
    let words = "printf ') Z 0 0 0\\n' >/proc/$$/comm; echo here; sleep 7001";
    tried(words, ended(2, 0)).await
}

#[tokio::test]
async fn a_terminal_that_was_hung_up_is_known_all_the_same() -> Result<()> {
    let started = "until [ $(ps -eo args | grep -c \"^sleep 7\") = 2 ]; do :; done";
    let inside = format!("setsid sleep 7001 & env -i setsid sleep 7002 & {started}");
    let words = format!("script -qc '{inside}' /dev/null; echo here");
    tried(&words, ended(2, 0)).await
}

#[tokio::test]
async fn process_is_found_by_stream_at_any_descriptor() -> Result<()> {
    // The stream is standard input and output, next to a stream of the application's.
    let beside = "(env -i setsid sleep 7001 2>/proc/1/fd/2 &); echo here; sleep 7002";
    tried(beside, ended(3, 0)).await?;
    // The stream is at an unusual descriptor, also in the first process of the session.
    let apart = "exec 7<&0 0</dev/null; (env -i setsid bash -c \
         'exec 9<&7 7<&- >/dev/null 2>&1; sleep 7001; :' &); echo here; exec >&- 2>&-; sleep 7002";
    tried(apart, ended(4, 0)).await
}

/// The age is the age at the time of the request for the script. The runtime of a busy node runs the script many
/// seconds
/// later, and the script then kills the processes by which it recognizes others.
#[tokio::test]
async fn process_sharing_stream_is_found_by_delayed_script() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let words = "(env -i setsid sleep 7001 &); echo here; sleep 7002";
    let mut containers = Vec::new();
    for shell in SHELLS {
        let mut container = Container::start(WAITS).await?;
        container.open("0", true, words)?;
        containers.push((shell, container));
    }
    let opened = Instant::now();
    eventually("it to wait", CONDITION_TIMEOUT, async || {
        Ok((opened.elapsed().as_secs() >= 10).then_some(()))
    })
    .await?;
    for (shell, container) in containers {
        let seen = container.end_of(SignedDuration::ZERO, "0", shell)?;
        assert_eq!(seen, ended(3, 0), "{shell:?}: {}", container.running()?);
        container.has("sleep 7", 0).await?;
    }
    Ok(())
}

/// Zombies stay in the list of processes while no parent reaps them.
#[tokio::test]
async fn zombie_is_not_counted_as_remaining_process() -> Result<()> {
    // Its child ends before the parent becomes a process that reaps no children.
    let mine = "(sleep 0.1 & exec bash -c 'exec sleep 7001') & until ps -eo stat,args \
         | grep -q '^Z.*sleep.*defunct'; do :; done; echo here; sleep 7002";
    tried(mine, ended(3, 0)).await
}

#[tokio::test]
async fn unidentifiable_process_is_left_and_counted() -> Result<()> {
    // No process that is known as one of the grant exists any more.
    let words = "exec 3<&0; env -i setsid sleep 7001 <&3 >/dev/null 2>&1 & echo here; exit";
    tried(words, ended(0, 1)).await
}

#[tokio::test]
async fn unreadable_process_is_counted() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("sleep");
    std::fs::copy("/bin/busybox", &copy)?;
    for (path, mode) in [(directory.path(), "755"), (copy.as_path(), "111")] {
        let mut change = Command::new("chmod");
        run({
            change.arg(mode).arg(path);
            change
        })?;
    }
    let copy = copy.display();
    let hidden = format!("(env -i setsid {copy} 7001 </dev/null >/dev/null 2>&1 &)");
    for shell in SHELLS {
        let mut container = Container::start(WAITS).await?;
        container.open(NOBODY, true, &format!("{hidden}; echo here; sleep 7002"))?;
        container.has(&format!("{copy} 7001"), 1).await?;
        assert_eq!(container.end(NOBODY, shell)?, ended(2, 1), "{shell:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_application_and_the_sessions_of_others_go_on() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    for shell in SHELLS {
        // The application starts processes with separate pipes while the grant lasts, and one that left.
        let application =
            "sleep 1.5; (setsid sleep 8001 &); while :; do sleep 8002 | sleep 8003; done";
        let mut container = Container::start(application).await?;
        let theirs = "(setsid sleep 8004 &); echo here; sleep 8005";
        container.open("0", false, theirs)?;
        container.has("sleep 8003", 1).await?;
        // The user reads from the pipe of these processes.
        let pipe = "/proc/$(pgrep -xf 'sleep 8002')/fd/1";
        let looks = format!("echo here; exec 5<{pipe}; exec cat <{pipe}");
        container.open("0", true, &looks)?;
        container.has("cat", 1).await?;
        assert_eq!(container.end("0", shell)?, ended(1, 0), "{shell:?}");
        for other in 8001..=8005 {
            container.has(&format!("sleep {other}"), 1).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn hundreds_of_processes_of_session_and_application_are_distinguished() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    for shell in SHELLS {
        let application = "for i in {1..200}; do setsid sleep 8001 & done; exec sleep 600";
        let mut container = Container::start(application).await?;
        container.has("sleep 8001", 200).await?;
        let words = "for i in {1..200}; do (env -i setsid sleep 7001 &); (setsid sleep 7001 &); done; \
             echo here; sleep 7002";
        container.open("0", true, words)?;
        container.has("sleep 7001", 400).await?;
        assert_eq!(container.end("0", shell)?, ended(402, 0), "{shell:?}");
        container.has("sleep 7", 0).await?;
        container.has("sleep 8001", 200).await?;
    }
    Ok(())
}
