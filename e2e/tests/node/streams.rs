//! Standard input of every kind, with all flags: the output and the exit code of a command arrive, as with kubectl. The
//! table is one test, over one grant.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::StreamExt as _;
use oz_api::ExecAccessRequest;
use oz_e2e::{Scene, System, Terminal};
use oz_testkit::{cargo_binary, eventually};

use crate::alone;

const SOON: Duration = Duration::from_secs(90);
/// The number of concurrent sessions.
const AT_ONCE: usize = 8;
const WORD: &[u8] = b"word\n";

/// The kind of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// An open pipe with a word in it.
    Open,
    /// An input at its end from the beginning.
    AtItsEnd,
    /// No standard input.
    Closed,
    /// A word, and then the end.
    Pipe,
    /// A file with a word in it.
    File,
    /// A terminal with a typed word.
    Terminal,
}

impl Input {
    const ALL: [Self; 6] = [
        Self::Open,
        Self::AtItsEnd,
        Self::Closed,
        Self::Pipe,
        Self::File,
        Self::Terminal,
    ];

    const fn has_a_word(self) -> bool {
        !matches!(self, Self::AtItsEnd | Self::Closed)
    }
}

/// The script of a command, its output, and its exit code.
#[derive(Debug)]
struct Case {
    script: &'static str,
    /// The output, without the word that the command may have read.
    says: &'static [&'static str],
    code: i32,
    reads: bool,
}

const CASES: [Case; 4] = [
    Case {
        script: "echo one",
        says: &["one"],
        code: 0,
        reads: false,
    },
    Case {
        script: "echo one; sleep 1; echo two; exit 4",
        says: &["one", "two"],
        code: 4,
        reads: false,
    },
    Case {
        script: "read line; echo got-$line-; exit 3",
        says: &[],
        code: 3,
        reads: true,
    },
    Case {
        script: "sleep 1; echo one; echo two",
        says: &["one", "two"],
        code: 0,
        reads: false,
    },
];

/// Flags of ozctl, and those of kubectl with the same meaning where input is passed on.
const FLAGS: [(&[&str], &[&str]); 4] = [
    (&[], &["-i"]),
    (&["-i"], &["-i"]),
    (&["-t"], &["-i", "-t"]),
    (&["-it"], &["-i", "-t"]),
];

/// A line of the table, for one program.
struct Line<'a> {
    command: Command,
    input: Input,
    case: &'a Case,
    title: String,
    is_kubectls: bool,
}

impl Line<'_> {
    /// Checks the line, with a second attempt for a terminal and for kubectl. Container runtimes sometimes lose the
    /// output
    /// of a command on a terminal that ends at that instant, for every client (containerd closes the terminal at the
    /// exit), and
    /// sometimes kubectl does not end, which is not under test.
    async fn holds(self, file: &Path) -> Result<()> {
        match self.attempt(file).await {
            Err(error) if self.input == Input::Terminal || self.is_kubectls => {
                eprintln!("once more: {error:#}");
                self.attempt(file).await
            }
            result => result,
        }
    }

    async fn attempt(&self, file: &Path) -> Result<()> {
        let title = self.title.clone();
        let (said, code) = self.outcome(file).await.context(title.clone())?;
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let got = match self.input.has_a_word() {
            true => "got-word-",
            false => "got--",
        };
        let mut expected = self.case.says.to_vec();
        expected.extend(self.case.reads.then_some(got));
        for line in expected {
            let there = lines.iter().any(|shown| shown.ends_with(line));
            anyhow::ensure!(there, "{title}: no {line:?} in {said:?}");
        }
        anyhow::ensure!(
            code == self.case.code,
            "{title}: exit code {code}: {said:?}"
        );
        Ok(())
    }

    /// Returns the standard output of the program, and its exit code.
    async fn outcome(&self, file: &Path) -> Result<(String, i32)> {
        if self.input == Input::Terminal {
            let mut terminal = Terminal::start(&self.command, 30, 100)?;
            terminal.keys("word\r")?;
            let code = terminal.code().await?;
            return Ok((terminal.screen(), code));
        }
        let mut command = Command::new("sh");
        command.args(["-c", self.shell(), "sh"]);
        command.arg(self.command.get_program());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = tempfile::tempfile()?;
        command
            .stdout(output.try_clone()?)
            .stderr(Stdio::piped())
            .stdin(match self.input {
                Input::File => File::open(file)?.into(),
                Input::AtItsEnd => Stdio::null(),
                _ => Stdio::piped(),
            });
        let mut child = Running(command.spawn()?);
        let mut pipe = child.0.stdin.take();
        if let Some(pipe) = &mut pipe
            && self.input != Input::Closed
        {
            pipe.write_all(WORD)?;
        }
        let open = pipe.filter(|_| self.input == Input::Open);
        let ended = eventually("the end of it", SOON, async || Ok(child.0.try_wait()?));
        let status = ended.await?;
        drop(open);
        let mut said = String::new();
        let mut output = output;
        std::io::Seek::rewind(&mut output)?;
        output.read_to_string(&mut said)?;
        Ok((said, status.code().context("it was ended by a signal")?))
    }

    const fn shell(&self) -> &'static str {
        match self.input {
            Input::Closed => "exec \"$@\" <&-",
            _ => "exec \"$@\"",
        }
    }
}

/// A child that does not outlive its line.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn output_and_exit_code_are_delivered_for_any_input() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "streams").await?;
    scene.people_may_look().await?;
    let ozctl = |words: &[&str]| -> Result<Command> {
        let mut command = Command::new(cargo_binary("ozctl")?);
        command
            .args(["-n", scene.name()])
            .args(words)
            .env("KUBECONFIG", cluster.kubeconfig("alice"))
            .env("USER", "alice");
        Ok(command)
    };
    let mut asking = ozctl(&["exec", "deploy/web", "--keep", "--", "true"])?;
    let asked = tokio::task::spawn_blocking(move || asking.output()).await??;
    anyhow::ensure!(asked.status.success(), "{asked:?}");
    let requests = scene.api::<ExecAccessRequest>();
    let granted = requests.list(&Default::default()).await?.items;
    let granted = granted.into_iter().next().context("no request was kept")?;
    let name = granted.metadata.name.context("no name")?;
    let pod = granted
        .status
        .and_then(|status| status.pod_name)
        .context("no pod")?;

    let mut lines = Vec::new();
    for input in Input::ALL {
        for (ours, kubectls) in FLAGS {
            for case in &CASES {
                let run = ["--", "sh", "-c", case.script];
                let line = |command, title: String, is_kubectls| Line {
                    command,
                    input,
                    case,
                    title: format!("{input:?}: {title}"),
                    is_kubectls,
                };
                let words = [&["exec", "deploy/web", "--request", &name], ours, &run].concat();
                lines.push(line(ozctl(&words)?, format!("ozctl {words:?}"), false));
                let words = [&["exec", "-n", scene.name(), &pod], kubectls, &run].concat();
                let mut kubectl = cluster.kubectl("alice");
                kubectl.args(&words);
                lines.push(line(kubectl, format!("kubectl {words:?}"), true));
            }
        }
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("word");
    std::fs::write(&file, WORD)?;
    let lines = lines.into_iter().map(|line| line.holds(&file));
    let wrong: Vec<String> = futures::stream::iter(lines)
        .buffer_unordered(AT_ONCE)
        .filter_map(async |line| line.err().map(|error| format!("{error:#}")))
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
