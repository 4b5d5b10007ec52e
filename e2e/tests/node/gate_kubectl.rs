//! The gate on a real node with unmodified kubectl of several versions: the data through the gate is the same, byte for
//! byte, as without it. Versions with SPDY pass as well, and are not recorded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use oz_api::{DebugConfig, Operation, RecordingConfig, RecordingMode};
use oz_core::gate::prefix;
use oz_e2e::{
    GATED, Gate, RecordingStore, STREAMS, Scene, System, Terminal, WORKLOAD, exec_request,
    recording_template, records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, Process, Tool, Tools, eventually, fixtures, scaled};
use oz_trail::{Action, Record};
use serde_json::json;
use tempfile::TempDir;

use crate::alone;
use crate::gate::said;
use crate::gate_debug::answered;

/// The name of the template that opens only recorded sessions.
pub(crate) const REQUIRED: &str = "required";
/// The input of the tests that expect the same bytes as output.
pub(crate) const WORDS: &[u8] = b"hello\0\xff\nyou\n";
/// The amount of data for each to pass on, in MiB, and in the long form of the test.
const INPUT: usize = 64;
const LONG_INPUT: usize = 1024;
/// The size of a piece of a large file.
const PIECE: usize = 1 << 20;

/// A kubectl, and its settings for streaming.
struct Kubectl {
    title: &'static str,
    tool: Tool,
    environment: &'static [(&'static str, &'static str)],
    /// True if its sessions can be recorded.
    recorded: bool,
}

const ALL: [Kubectl; 4] = [
    // It forwards ports over SPDY.
    Kubectl {
        title: "kubectl 1.30",
        tool: Tool::Kubectl130,
        environment: &[],
        recorded: true,
    },
    // This one is like the versions before it, except for ports.
    Kubectl {
        title: "kubectl 1.30 over SPDY",
        tool: Tool::Kubectl130,
        environment: &[
            ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"),
            ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "true"),
        ],
        recorded: false,
    },
    Kubectl {
        title: "kubectl 1.32",
        tool: Tool::Kubectl132,
        environment: &[],
        recorded: true,
    },
    Kubectl {
        title: "kubectl of the cluster's version",
        tool: Tool::Kubectl,
        environment: &[],
        recorded: true,
    },
];

/// The scene, the gate and the pod, and the programs that use them.
struct World<'a> {
    scene: &'a Scene,
    gate: &'a Gate,
    tools: &'a Tools,
    pod: String,
    directory: TempDir,
}

impl World<'_> {
    fn kubectl(&self, kubectl: &Kubectl, user: &str) -> Result<Command> {
        let program = self.tools.path(kubectl.tool)?;
        let mut command = self.scene.cluster.kubectl_of(program, user);
        command.envs(kubectl.environment.iter().copied());
        command.args(["--namespace", self.scene.name()]);
        Ok(command)
    }

    /// Returns the same command without the gate, as an administrator, and through it.
    fn both(&self, kubectl: &Kubectl, words: &[&str]) -> Result<[Command; 2]> {
        let mut direct = self.kubectl(kubectl, "admin")?;
        direct.args(words);
        Ok([direct, self.through(kubectl, "mine", words)?])
    }

    fn through(&self, kubectl: &Kubectl, request: &str, words: &[&str]) -> Result<Command> {
        let path = prefix(self.scene.name(), request);
        let server = format!("{}{path}", self.scene.cluster.server_url());
        let mut command = self.kubectl(kubectl, "alice")?;
        command.args(["--server", &server]).args(words);
        Ok(command)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a file of this many MiB, no two of which are the same.
    fn file(&self, name: &str, length: usize) -> Result<PathBuf> {
        let path = self.path(name);
        let mut piece = vec![0; PIECE];
        File::open("/dev/urandom")?.read_exact(&mut piece)?;
        let mut file = File::create(&path)?;
        for number in 0..length {
            piece[..8].copy_from_slice(&u64::try_from(number)?.to_le_bytes());
            file.write_all(&piece)?;
        }
        Ok(path)
    }
}

/// Creates a pod with a container for exec, one that echoes its standard input, one that runs the script `serve`, and
/// one that writes a log.
pub(crate) async fn pod(scene: &Scene, serve: &str) -> Result<String> {
    let container = |name: &str, script: &str| json!({"name": name, "image": fixtures::IMAGE, "command": ["sh", "-c", script]});
    let mut echo = container("echo", "exec cat");
    echo["stdin"] = json!(true);
    let containers = [
        json!({"name": fixtures::CONTAINER, "image": fixtures::IMAGE}),
        echo,
        container("serve", serve),
        container("log", "seq 1 20000; exec sleep 86400"),
    ];
    let pod = fixtures::deployment_of(&scene.admin, scene.name(), WORKLOAD, &containers).await?;
    pod.metadata.name.context("no name")
}

/// The script of a container that serves a file.
const SERVE: &str = "mkdir /www; seq 1 300000 > /www/big; exec httpd -f -p 8080 -h /www";

/// Creates two templates, one that offers recordings and one that requires them, and a request of alice by each, `mine`
/// and `strict`.
pub(crate) async fn requests(scene: &Scene) -> Result<()> {
    for (name, mode) in [
        (GATED, RecordingMode::BestEffort),
        (REQUIRED, RecordingMode::Required),
    ] {
        let mut template = recording_template(RecordingConfig {
            mode,
            ..RecordingConfig::default()
        });
        template.metadata.name = Some(name.to_owned());
        let config = &mut template.spec.access_config;
        config.operations = STREAMS.to_vec();
        if mode == RecordingMode::BestEffort {
            config.operations.push(Operation::Debug);
            config.debug = Some(DebugConfig {
                images: vec![fixtures::IMAGE.to_owned()],
            });
        }
        scene.template(&template).await?;
    }
    let alice = scene.requests("alice").await?;
    for (request, template) in [("mine", GATED), ("strict", REQUIRED)] {
        alice
            .granted(&exec_request(request, template, "2h"))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_kubectl_carries_through_the_gate_what_it_carries_without() -> Result<()> {
    // They are compiled once, while the other tests run.
    let tools = tokio::task::spawn_blocking(|| Tools::obtain(&ALL.map(|kubectl| kubectl.tool)));
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let tools = tools.await??;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::empty(cluster, "kubectl").await?;
    let pod = pod(&scene, SERVE).await?;
    requests(&scene).await?;
    let world = World {
        scene: &scene,
        gate: &gate,
        tools: &tools,
        pod,
        directory: TempDir::new()?,
    };
    for kubectl in &ALL {
        let began = Timestamp::now();
        carries(&world, kubectl)
            .await
            .with_context(|| kubectl.title)?;
        // The sessions are two commands, two terminals, two inputs, two copies, an attach and an added container.
        recorded(
            &world.gate.process,
            scene.name(),
            (kubectl.recorded, began),
            10,
        )
        .await
        .with_context(|| kubectl.title)?;
        let took = Timestamp::now().duration_since(began);
        eprintln!("{} in {took:#}", kubectl.title);
    }
    Ok(())
}

async fn carries(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    required(world, kubectl).await?;
    command(world, kubectl)?;
    terminal(world, kubectl).await?;
    input(world, kubectl)?;
    copies(world, kubectl)?;
    attaches(world, kubectl)?;
    forwards(world, kubectl)?;
    follows(world, kubectl)?;
    debugs(world, kubectl).await
}

/// Checks that a template that requires recordings admits a kubectl with recordable sessions, and that the error for
/// others names the versions with them.
async fn required(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let words = ["exec", &world.pod, "-c", fixtures::CONTAINER, "--", "true"];
    let offered = || Ok::<_, anyhow::Error>(world.through(kubectl, "mine", &words)?.output()?);
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(offered()?.status.success().then_some(()))
    })
    .await?;
    let strict = world.through(kubectl, "strict", &words)?.output()?;
    assert_eq!(
        strict.status.success(),
        kubectl.recorded,
        "{}",
        said(&strict)
    );
    if !kubectl.recorded {
        let told = said(&strict);
        ensure!(
            told.contains("use kubectl 1.30 or newer, or ozctl"),
            "{told}"
        );
    }
    Ok(())
}

/// Compares both streams and the exit code.
fn command(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let script = "seq 1 50000; seq 1 50000 >&2; exit 7";
    let words = [
        "exec",
        &world.pod,
        "-c",
        fixtures::CONTAINER,
        "--",
        "sh",
        "-c",
        script,
    ];
    let [direct, gated] = world.both(kubectl, &words)?.map(|mut one| one.output());
    let (direct, gated) = (of_the_command(direct?), of_the_command(gated?));
    assert_eq!(gated.status.code(), Some(7), "{}", said(&gated));
    ensure!(direct == gated, "{}", differ(&direct, &gated));
    Ok(())
}

/// Removes the messages of kubectl about data of a stream that it does not know yet.
pub(crate) fn of_the_command(mut output: Output) -> Output {
    let lines = output.stderr.split_inclusive(|byte| *byte == b'\n');
    let unknown = b"Unknown stream id";
    let kept = lines.filter(|line| !line.windows(unknown.len()).any(|part| part == unknown));
    output.stderr = kept.flatten().copied().collect();
    output
}

pub(crate) fn differ(direct: &Output, gated: &Output) -> String {
    let lengths = |output: &Output| {
        let code = output.status.code();
        format!(
            "{} and {} bytes, {code:?}",
            output.stdout.len(),
            output.stderr.len()
        )
    };
    format!("{} and {}", lengths(direct), lengths(gated))
}

/// Checks the text of a terminal, its size, Ctrl-C, and the exit code.
async fn terminal(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let start = ["exec", "-it", &world.pod, "-c", fixtures::CONTAINER, "--"];
    let script = "seq 1 20000; read line; exit 5";
    let words = [&start[..], &["sh", "-c", script]].concat();
    let mut screens = Vec::new();
    for command in world.both(kubectl, &words)? {
        let mut terminal = Terminal::start(&command, 33, 101)?;
        terminal.shows("20000").await?;
        terminal.keys("\r")?;
        assert_eq!(terminal.code().await?, 5, "{}", terminal.screen());
        screens.push(terminal.screen());
    }
    let [direct, gated] = &screens[..] else {
        anyhow::bail!("not two screens");
    };
    ensure!(direct == gated, "{} and {}", direct.len(), gated.len());

    let shell = world.through(kubectl, "mine", &[&start[..], &["sh"]].concat())?;
    let mut terminal = Terminal::start(&shell, 33, 101)?;
    terminal.is_sized(33, 101).await?;
    terminal.resize(20, 80)?;
    terminal.is_sized(20, 80).await?;
    terminal.interrupts().await?;
    terminal.keys("exit 7\r")?;
    assert_eq!(terminal.code().await?, 7, "{}", terminal.screen());
    Ok(())
}

/// Checks that piped input arrives, to its end, and returns.
fn input(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let start = ["exec", "-i", &world.pod, "-c", fixtures::CONTAINER, "--"];
    let fed = |words: &[&str], input: &Path| {
        let mut command = world.through(kubectl, "mine", &[&start[..], words].concat())?;
        Ok::<_, anyhow::Error>(command.stdin(File::open(input)?).output()?)
    };
    let length = scaled(INPUT, LONG_INPUT);
    let large = world.file("large", length)?;
    let sum = Command::new("sha256sum")
        .stdin(File::open(&large)?)
        .output()?;
    let began = std::time::Instant::now();
    let summed = fed(&["sha256sum"], &large)?;
    let took = began.elapsed().as_secs_f64();
    eprintln!("{}: {length} MiB in {took:.1} s", kubectl.title);
    ensure!(
        !sum.stdout.is_empty() && sum.stdout == summed.stdout,
        "{}",
        said(&summed)
    );
    let small = world.file("small", 8)?;
    let back = fed(&["cat"], &small)?;
    ensure!(
        back.stdout == fs::read(&small)?,
        "{} bytes came back",
        back.stdout.len()
    );
    fs::remove_file(large)?;
    Ok(())
}

/// Checks `cp` into the pod and out of it.
fn copies(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let small = world.path("small");
    let there = format!("{}:/tmp/copied", world.pod);
    let small_path = small.to_str().context("a path")?;
    let container = ["-c", fixtures::CONTAINER];
    let copy = |mut command: Command| {
        let output = command.output()?;
        ensure!(output.status.success(), "{}", said(&output));
        Ok(())
    };
    let cp = |from: &str, to: &str| -> Vec<String> {
        let words = ["cp", from, to].into_iter().chain(container);
        words.map(str::to_owned).collect()
    };
    let words = cp(small_path, &there);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    copy(world.through(kubectl, "mine", &words)?)?;
    let back = world.path("back");
    let words = cp(&there, back.to_str().context("a path")?);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for command in world.both(kubectl, &words)? {
        copy(command)?;
        ensure!(
            fs::read(&small)? == fs::read(&back)?,
            "another file came back"
        );
        fs::remove_file(&back)?;
    }
    Ok(())
}

/// Checks that the input of a running container returns.
fn attaches(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    for command in world.both(kubectl, &["attach", "-i", &world.pod, "-c", "echo"])? {
        let heard = answered(command, WORDS)?;
        ensure!(heard == WORDS, "{heard:?}");
    }
    Ok(())
}

/// Checks that a file that the pod serves is the same at a port of this machine.
fn forwards(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let mut bodies = Vec::new();
    for mut command in world.both(kubectl, &["port-forward", &world.pod, ":8080"])? {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
        output.read_line(&mut line)?;
        let port = line
            .strip_prefix("Forwarding from 127.0.0.1:")
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| format!("it says {line:?}"))?;
        // One session carries two connections.
        for _ in 0..2 {
            let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
            stream.write_all(b"GET /big HTTP/1.0\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            let body = answer.windows(4).position(|four| four == b"\r\n\r\n");
            bodies.push(answer.split_off(body.context("no answer")? + 4));
        }
        child.kill()?;
        child.wait()?;
    }
    let served: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    for body in bodies {
        ensure!(body == served.as_bytes(), "{} bytes came", body.len());
    }
    Ok(())
}

/// Checks that a followed log has its previous lines, and continues.
fn follows(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let [mut direct, _] = world.both(kubectl, &["logs", &world.pod, "-c", "log"])?;
    let written = direct.output()?.stdout;
    ensure!(written.starts_with(b"1\n2\n"), "{} bytes", written.len());
    let words = ["logs", "-f", &world.pod, "-c", "log"];
    let mut gated = world.through(kubectl, "mine", &words)?;
    let mut child = gated
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().context("no standard output")?;
    let mut heard = vec![0; written.len()];
    output.read_exact(&mut heard)?;
    ensure!(heard == written, "something else is followed");
    let line = format!("{}\n", kubectl.title);
    // The title is an argument of the script: it has an apostrophe.
    let more = "echo \"$0\" > /proc/1/fd/1";
    let command = ["sh", "-c", more, kubectl.title];
    let words = [&["exec", &world.pod, "-c", "log", "--"], &command[..]].concat();
    let [mut direct, _] = world.both(kubectl, &words)?;
    let written = direct.output()?;
    ensure!(written.status.success(), "{}", said(&written));
    let mut next = vec![0; line.len()];
    output.read_exact(&mut next)?;
    child.kill()?;
    child.wait()?;
    ensure!(
        next == line.as_bytes(),
        "{:?}",
        String::from_utf8_lossy(&next)
    );
    Ok(())
}

/// Checks that an added container returns its input.
async fn debugs(world: &World<'_>, kubectl: &Kubectl) -> Result<()> {
    let words = [
        "debug",
        &world.pod,
        "--image",
        fixtures::IMAGE,
        "-i",
        "--quiet",
        "--",
        "cat",
    ];
    eventually("a container that answers", CONDITION_TIMEOUT, async || {
        let heard = answered(world.through(kubectl, "mine", &words)?, WORDS)?;
        Ok((heard == WORDS).then_some(()))
    })
    .await
}

/// Waits until at least `least` sessions with a command that were opened in a namespace since then have ended, and each
/// has its record: `SessionRecorded`, or `SessionUnrecorded`.
pub(crate) async fn recorded(
    gate: &Process,
    namespace: &str,
    (recorded, since): (bool, Timestamp),
    least: usize,
) -> Result<()> {
    let key = |record: &Record| record.details.get("session").cloned();
    let wanted = match recorded {
        true => Action::SessionRecorded,
        false => Action::SessionUnrecorded,
    };
    eventually("everything on record", CONDITION_TIMEOUT, async || {
        let mut records = records_in(gate)?;
        records.retain(|one| one.request.namespace == namespace);
        let typed = |one: &&Record| {
            let way = one.details.get("way").map(String::as_str);
            let opened = one.details.get("openedAt").and_then(|at| at.parse().ok());
            one.action == Action::SessionEnded
                && matches!(way, Some("exec" | "attach"))
                && opened >= Some(since)
        };
        let ended: BTreeSet<String> = records.iter().filter(typed).filter_map(key).collect();
        let told = records.iter().filter(|one| one.action == wanted);
        let told: BTreeSet<String> = told.filter_map(key).collect();
        let missing: Vec<&String> = ended.difference(&told).collect();
        ensure!(missing.is_empty(), "not {wanted}: {missing:?}");
        Ok((ended.len() >= least).then_some(()))
    })
    .await
}
