//! The delay that the gate adds to a session, on a real node, compared with sessions that do not pass it, in
//! turns: to the first byte, to each key, to the output of a command; the memory of many open sessions; and
//! the delay until the last of them is closed when all end at one instant.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, AttachedProcess};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use oz_api::{NonInteractive, RecordingConfig, RecordingMode};
use oz_core::gate::prefix;
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, System, TEMPLATE, exec_request, gate_template,
    recording_template,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::process::{processor_time, resident};
use super::report::{Budget, Report};
use super::sessions::milliseconds;
use super::stats::Values;
use crate::real_node;

/// Name of the template with recorded sessions.
const RECORDED: &str = "recorded";
/// The template that stores the beginning and the digest of sessions without a terminal.
const DIGEST: &str = "digest";
/// The budgets for the delay that the gate adds, in milliseconds.
const FIRST_BYTE: f64 = 30.0;
const KEY: f64 = 2.0;
/// The budget for its throughput for each second of a processor, in units of a million bytes.
const PASSED: f64 = 200.0;
/// The budget for its memory for all open sessions, in MiB.
const HELD: f64 = 100.0;
/// The budget for the delay until the last session is closed, in milliseconds.
const CLOSED: f64 = 200.0;
/// The number of sessions that are opened at once.
const AT_ONCE: usize = 4;
/// The time in which all must be open.
const OPENING: SignedDuration = SignedDuration::from_secs(90);

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) opened: usize,
    pub(super) keys: usize,
    /// The output of a command, in units of a million bytes.
    pub(super) printed: u32,
    pub(super) open: usize,
    pub(super) runs: u32,
}

impl Size {
    pub(super) const fn full(runs: u32) -> Self {
        Self {
            opened: 30,
            keys: 500,
            printed: 300,
            open: 200,
            runs,
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            opened: 10,
            keys: 100,
            printed: 100,
            open: 40,
            runs: 1,
        }
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let most = size.open + 8;
    let kept = RecordingStore::new()?;
    let options = kept.options().set("gate.maxSessionsPerUser", most);
    let gate = Gate::start(cluster, &options).await?;
    let scene = Scene::set(cluster, "gate-bench").await?;
    scene.template(&gate_template()).await?;
    for (name, non_interactive) in [(RECORDED, None), (DIGEST, Some(NonInteractive::Digest))] {
        let mut recorded = recording_template(RecordingConfig {
            mode: RecordingMode::Required,
            non_interactive,
            ..Default::default()
        });
        recorded.metadata.name = Some(name.to_owned());
        scene.template(&recorded).await?;
    }
    let ways = [
        SessionTarget::open(&scene, "direct", TEMPLATE).await?,
        SessionTarget::open(&scene, "gated", GATED).await?,
        SessionTarget::open(&scene, "recorded", RECORDED).await?,
    ];
    let digest = SessionTarget::open(&scene, "digest", DIGEST).await?;
    for run in 0..size.runs {
        first_byte(&ways, size.opened, report).await?;
        keys(&ways, size.keys, report).await?;
        printed((&ways, &digest), size.printed, &gate, report).await?;
        at_one_instant(&scene, run, size.open, &gate, report).await?;
    }
    Ok(())
}

/// A pod to which a user has access, and the path to it.
struct SessionTarget {
    pods: Api<Pod>,
    pod: String,
    until: Timestamp,
}

impl SessionTarget {
    async fn open(scene: &Scene, request: &str, template: &str) -> Result<Self> {
        Self::lasting(scene, request, template, "3h").await
    }

    async fn lasting(scene: &Scene, request: &str, template: &str, duration: &str) -> Result<Self> {
        let alice = scene.requests("alice").await?;
        let granted = alice
            .granted(&exec_request(request, template, duration))
            .await?;
        let file = Kubeconfig::read_from(scene.cluster.kubeconfig("alice"))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options).await?;
        config.read_timeout = None;
        if template != TEMPLATE {
            let path = prefix(scene.name(), request);
            config.cluster_url = format!("{}{path}", scene.cluster.server_url()).parse()?;
        }
        let way = Self {
            pods: Api::namespaced(Client::try_from(config)?, scene.name()),
            pod: granted.pod(),
            until: granted.status().expires_at.context("no end")?,
        };
        eventually(
            &format!("a session of {request}"),
            CONDITION_TIMEOUT,
            async || Ok(way.run("echo here", false).await.ok().map(drop)),
        )
        .await?;
        Ok(way)
    }

    async fn run(&self, script: &str, terminal: bool) -> Result<AttachedProcess> {
        let parameters = AttachParams::default()
            .stdin(true)
            .stderr(false)
            .tty(terminal)
            .max_stdout_buf_size(1 << 20);
        let command = ["sh", "-c", script];
        let process = self.pods.exec(&self.pod, command, &parameters).await;
        process.context("failed to open a session")
    }
}

fn output(process: &mut AttachedProcess) -> Result<impl AsyncRead + Unpin + use<>> {
    process.stdout().context("a session without output")
}

/// Measures the time from the start until the first byte of a command, one way after the other.
async fn first_byte(ways: &[SessionTarget; 3], count: usize, report: &mut Report) -> Result<()> {
    let mut took = [const { Vec::new() }; 3];
    for _ in 0..count {
        for (way, took) in ways.iter().zip(&mut took) {
            let began = Instant::now();
            let mut process = way.run("echo here", false).await?;
            output(&mut process)?.read_exact(&mut [0]).await?;
            took.push(began.elapsed());
        }
    }
    beside("exec to first byte", FIRST_BYTE, took, report);
    Ok(())
}

/// Measures the time from a key until the terminal echoes it.
async fn keys(ways: &[SessionTarget; 3], count: usize, report: &mut Report) -> Result<()> {
    let mut took = [const { Vec::new() }; 3];
    let mut open = Vec::new();
    for way in ways {
        let mut process = way.run("echo ready; exec cat", true).await?;
        let input = process.stdin().context("a session without input")?;
        let mut output = output(&mut process)?;
        let mut seen = Vec::new();
        while !seen.ends_with(b"ready\r\n") {
            seen.push(output.read_u8().await?);
        }
        open.push((process, input, output));
    }
    for _ in 0..count {
        for ((_, input, output), took) in open.iter_mut().zip(&mut took) {
            let began = Instant::now();
            input.write_all(b"k").await?;
            input.flush().await?;
            ensure!(output.read_u8().await? == b'k', "another key came back");
            took.push(began.elapsed());
        }
    }
    beside("key to echo", KEY, took, report);
    Ok(())
}

/// Reports the median of each way, and the delay that the gate adds to it.
fn beside(what: &str, budget: f64, took: [Vec<Duration>; 3], report: &mut Report) {
    let [direct, gated, recorded] = took.map(|took| took.into_iter().collect::<Values>().median());
    for (way, value) in [("direct", direct), ("gate", gated), ("recorded", recorded)] {
        report.add(&format!("{what}, p50, {way}"), "ms", Budget::None, value);
    }
    for (way, value) in [("gate", gated), ("recorded", recorded)] {
        let adds = format!("  {what}: what {way} adds");
        report.add(&adds, "ms", Budget::AtMost(budget), value - direct);
    }
    let ratio = format!("  {what}: gate over direct");
    report.add(&ratio, "", Budget::None, gated / direct);
}

/// Measures the throughput of a command's output per second, and the processor time of the gate for it.
async fn printed(
    (ways, digest): (&[SessionTarget; 3], &SessionTarget),
    millions: u32,
    gate: &Gate,
    report: &mut Report,
) -> Result<()> {
    let mut rates = Vec::new();
    let names = ["direct", "gate", "recorded", "recorded as a digest"];
    for (way, name) in ways.iter().chain([digest]).zip(names) {
        let before = processor_time(gate.process.pid())?;
        let began = Instant::now();
        let bytes = u64::from(millions) * 1_000_000;
        let mut process = way
            .run(&format!("head -c {bytes} /dev/zero"), false)
            .await?;
        let mut output = output(&mut process)?;
        let mut buffer = vec![0; 1 << 16];
        let mut arrived = 0;
        while arrived < bytes {
            let read = output.read(&mut buffer).await?;
            ensure!(read > 0, "{arrived} of {bytes} bytes arrived");
            arrived += read as u64;
        }
        let rate = f64::from(millions) / began.elapsed().as_secs_f64();
        report.add(&format!("printed, {name}"), "MB/s", Budget::None, rate);
        rates.push(rate);
        if name != "direct" {
            let spent = processor_time(gate.process.pid())? - before;
            report.add(
                &format!("  for each second of the gate's processor, {name}"),
                "MB",
                if name == "gate" {
                    Budget::AtLeast(PASSED)
                } else {
                    Budget::None
                },
                f64::from(millions) / spent.as_secs_f64().max(0.01),
            );
        }
    }
    report.add(
        "  printed: gate over direct",
        "",
        Budget::None,
        rates[1] / rates[0],
    );
    Ok(())
}

/// Measures the memory of many sessions, and the time at which each is over for its user.
async fn at_one_instant(
    scene: &Scene,
    run: u32,
    count: usize,
    gate: &Gate,
    report: &mut Report,
) -> Result<()> {
    let duration = format!("{}s", OPENING.as_secs());
    let way = SessionTarget::lasting(scene, &format!("together-{run}"), GATED, &duration).await?;
    let before = resident(gate.process.pid())?;
    let open: Vec<AttachedProcess> = futures::stream::iter(0..count)
        .map(async |_| way.run("exec cat", false).await)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    ensure!(
        Timestamp::now() < way.until,
        "this machine is too busy to open {count} sessions within {OPENING}"
    );
    let all = resident(gate.process.pid())?;
    let ends = open.into_iter().map(async |mut process| {
        let mut output = output(&mut process)?;
        let mut rest = Vec::new();
        // Closed with a reason or without: it is over.
        let _ = output.read_to_end(&mut rest).await;
        anyhow::Ok(milliseconds(Timestamp::now().duration_since(way.until)))
    });
    let late: Values = futures::future::try_join_all(ends)
        .await?
        .into_iter()
        .collect();
    let held = format!("memory of the gate with {count} sessions");
    report.add(&held, "MiB", Budget::AtMost(HELD), all);
    report.add("  without them", "MiB", Budget::None, before);
    let closed = format!("{count} sessions that end at one instant, first");
    report.add(&closed, "ms", Budget::None, late.min());
    report.add("  p50 of them", "ms", Budget::None, late.median());
    report.add("  last of them", "ms", Budget::AtMost(CLOSED), late.max());
    Ok(())
}
