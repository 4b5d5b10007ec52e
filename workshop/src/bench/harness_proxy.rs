//! The proxy of a harness run on a real node, compared with TLS from a plain pod to the same upstream, in turns: a new
//! connection, a request on a kept connection, a large body; its memory at rest and after many requests; and the time
//! from the deletion of a policy until the connections of many runs are closed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::DeleteParams;
use oz_api::harness::BrokerPolicy;
use oz_e2e::agents::{AGENT, AgentScene, PlainPod, Running, processes};
use oz_e2e::programs::Programs;
use oz_e2e::released_harness_image_archive;
use oz_e2e::upstream::{ANTHROPIC, ECHO, Upstream};
use oz_testkit::{Cluster, eventually, scaled};
use serde::Deserialize;
use serde_json::Value;

use super::report::{Budget, Report};
use super::scene::CHANGE_TIMEOUT;
use super::stats::{Values, number};
use super::{Options, process};
use crate::real_node;

/// The image with the client.
const IMAGE: &str = "docker.io/library/run-client:dev";
/// The body of one response of the throughput, in bytes.
const BODY: usize = 64 << 20;
/// The number of those responses.
const BODIES: usize = 8;
/// The budgets: a new connection and the throughput as multiples of TLS without the proxy, and the delay that the proxy
/// adds to a request, in milliseconds.
const NEW_CONNECTION: f64 = 3.0;
const THROUGHPUT: f64 = 0.3;
const KEPT: f64 = 1.0;
/// The budgets of memory, in MiB: at rest, and the growth over many requests.
const IDLE: f64 = 12.0;
const GROWTH: f64 = 2.0;
/// The budget for the delay until connections are closed, in milliseconds.
const CUT: f64 = 2000.0;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
struct Size {
    runs: u32,
    /// New connections, and requests on a kept connection.
    requests: usize,
    /// Requests between the two measurements of memory.
    load: usize,
    /// The runs of the policy that is deleted.
    held: usize,
}

impl Size {
    fn full(runs: u32) -> Self {
        Self {
            runs,
            requests: 500,
            load: scaled(10_000, 100_000),
            held: 20,
        }
    }

    fn quick() -> Self {
        Self {
            runs: 1,
            requests: 100,
            load: 2_000,
            held: 2,
        }
    }

    /// Returns the time limit of one step, for 200 requests a second or more.
    fn timeout(self) -> Duration {
        let requests = u32::try_from(self.load).unwrap_or(u32::MAX);
        CHANGE_TIMEOUT + Duration::from_millis(5) * requests
    }

    /// Returns the script of the client: it waits for each step, and reports its result.
    fn script(self) -> String {
        let Self { requests, load, .. } = self;
        let url = format!("https://{ECHO}");
        let steps = [
            format!("connect {url}/nothing {requests}"),
            format!("keep {url}/nothing {requests}"),
            format!("receive {url}/bytes?{BODY} {BODIES}"),
            format!("load {url}/nothing {load}"),
            format!("load {url}/nothing {load}"),
        ];
        let mut script =
            "cd $PADDOCK_WORKSPACE; wait_for() { until [ -e $1 ]; do sleep 0.1; done; }; \
                          say() { cat >> report.jsonl; }; "
                .to_owned();
        for (number, step) in steps.iter().enumerate() {
            script += &format!("wait_for step-{number}; run-client {step} 2>errors | say; ");
        }
        script + "wait_for release"
    }
}

/// The result of a step of the client.
#[derive(Clone, Debug, Deserialize)]
struct Step {
    microseconds: Vec<u32>,
    #[serde(default)]
    bytes: u64,
}

impl Step {
    /// Returns the median of its requests in milliseconds.
    fn median(&self) -> f64 {
        let all = self.microseconds.iter().map(|it| f64::from(*it) / 1000.0);
        all.collect::<Values>().median()
    }

    /// Returns the received bytes in each second, in units of a million.
    fn rate(&self) -> Result<f64> {
        let micros: u32 = self.microseconds.iter().sum();
        Ok(number(self.bytes)? / f64::from(micros))
    }
}

pub(super) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let size = options.sized(Size::quick, Size::full);
    let archive = released_harness_image_archive()?;
    let (_owner, cluster) = real_node::cluster().await?;
    let upstream: &'static Upstream = Box::leak(Box::new(Upstream::start(cluster)?));
    let image = Programs::default().run_client()?.image(IMAGE)?;
    cluster.import_image(image)?;
    let scene = AgentScene::start_with_archive(cluster, upstream, "proxy", &archive).await?;
    for turn in 0..size.runs {
        compare(cluster, &scene, size, turn, report).await?;
    }
    cuts(&scene, size, report).await
}

/// Runs the client in a run and in a plain pod, each step in turn.
async fn compare(
    cluster: &'static Cluster,
    scene: &AgentScene,
    size: Size,
    turn: u32,
    report: &mut Report,
) -> Result<()> {
    let script = size.script();
    let command = ["/bin/sh", "-c", &script];
    scene.policy(&[ECHO]).await?;
    scene.template(IMAGE, &command, &[ECHO], &[]).await?;
    let run = scene.submit(&format!("run-{turn}"), "measure").await?;
    let name = format!("plain-{turn}");
    let plain = PlainPod::start(&scene.scene, scene.upstream, &name, IMAGE, &command, "").await?;
    plain.started().await?;
    let pod = run.started().await?;
    let all = processes(&pod)?;
    let proxy = all.iter().find(|it| it.container == "proxy");
    let proxy = proxy.context("the proxy has no process")?.pid;
    // The client has sent nothing yet.
    let idle = process::resident(proxy)?;
    let mut memory = Vec::new();
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for number in 0..5 {
        direct.push(step(cluster, size, &plain.workspace()?, number).await?);
        through.push(step(cluster, size, &run.workspace(&pod)?, number).await?);
        memory.push(process::resident(proxy)?);
    }
    let [direct, through] = [&direct, &through].map(|all| match &all[..] {
        [connect, keep, receive, ..] => Ok([connect.clone(), keep.clone(), receive.clone()]),
        _ => Err(anyhow::anyhow!("the client made no steps")),
    });
    let ([connect, keep, receive], [connect_through, keep_through, receive_through]) =
        (direct?, through?);
    report.add_times(
        ("a new connection by TLS alone, p50", connect.median()),
        (
            "a new connection through the proxy, p50",
            connect_through.median(),
        ),
        ("  how many times as long", NEW_CONNECTION),
    );
    let added = keep_through.median() - keep.median();
    report.add(
        "a request on a kept connection by TLS alone, p50",
        "ms",
        Budget::None,
        keep.median(),
    );
    report.add(
        "  what the proxy adds to it",
        "ms",
        Budget::AtMost(KEPT),
        added,
    );
    let (alone, beside) = (receive.rate()?, receive_through.rate()?);
    report.add("throughput by TLS alone", "MB/s", Budget::None, alone);
    report.add("throughput through the proxy", "MB/s", Budget::None, beside);
    report.add(
        "  which part of it",
        "×",
        Budget::AtLeast(THROUGHPUT),
        beside / alone,
    );
    report.add(
        "memory of the proxy at rest",
        "MiB",
        Budget::AtMost(IDLE),
        idle,
    );
    if let [.., before, after] = memory[..] {
        let what = format!("growth of its memory over {} requests", size.load);
        report.add(
            "memory of the proxy after all steps",
            "MiB",
            Budget::None,
            after,
        );
        report.add(&what, "MiB", Budget::AtMost(GROWTH), after - before);
    }
    run.release().await?;
    run.delete().await?;
    plain.delete().await
}

/// Has the client make a step, and returns its result.
async fn step(cluster: &Cluster, size: Size, workspace: &Path, number: usize) -> Result<Step> {
    ensure!(
        workspace.starts_with(cluster.state_dir()),
        "another cluster's"
    );
    std::fs::write(workspace.join(format!("step-{number}")), "")?;
    eventually("the client to make a step", size.timeout(), async || {
        let text = std::fs::read_to_string(workspace.join("report.jsonl")).unwrap_or_default();
        let line = text.split_inclusive('\n').nth(number);
        match line.filter(|line| line.ends_with('\n')) {
            Some(line) => Ok(Some(serde_json::from_str(line)?)),
            None => anyhow::bail!(
                "{}",
                std::fs::read_to_string(workspace.join("errors")).unwrap_or_default()
            ),
        }
    })
    .await
}

/// Deletes the policy of several runs, each of which holds a connection, and measures the delay until each is closed.
async fn cuts(scene: &AgentScene, size: Size, report: &mut Report) -> Result<()> {
    scene.agent("held.py").await?;
    let mut runs: Vec<Running<'_>> = Vec::new();
    for number in 0..size.held {
        runs.push(scene.submit(&format!("held-{number}"), "hold").await?);
    }
    for run in &runs {
        run.report("a stream to be open", |it: &Value| it["step"] == "held")
            .await?;
    }
    let policies = scene.scene.api::<BrokerPolicy>();
    let before = Timestamp::now();
    policies.delete(AGENT, &DeleteParams::default()).await?;
    let closed = eventually("the connections to be closed", CHANGE_TIMEOUT, async || {
        let connections = scene.upstream.connections();
        let open = connections.iter().filter(|it| it.closed.is_none()).count();
        ensure!(open == 0, "{open} are open");
        let late = connections.iter().filter(|it| it.host == ANTHROPIC);
        let late = late.filter_map(|it| it.closed.filter(|closed| *closed >= before));
        Ok(Some(late.collect::<Vec<_>>()))
    })
    .await?;
    ensure!(
        closed.len() >= size.held,
        "only {} connections were open",
        closed.len()
    );
    let delays = closed.iter().map(|closed| {
        let delay = closed.duration_since(before);
        delay.as_secs_f64() * 1000.0
    });
    let delays: Values = delays.collect();
    let what = format!(
        "from the deletion of a policy until the connections of {} runs are closed",
        size.held
    );
    report.add(&format!("{what}, p50"), "ms", Budget::None, delays.median());
    report.add(
        &format!("{what}, p99"),
        "ms",
        Budget::AtMost(CUT),
        delays.percentile(99),
    );
    for run in &runs {
        run.release().await?;
        run.delete().await?;
    }
    Ok(())
}
