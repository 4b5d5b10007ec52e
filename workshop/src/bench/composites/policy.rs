//! One policy evaluated in process and, in the same run, by OPA over HTTP, as a composite calls its function; and by
//! another version of oz, if there is one to compare with.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use oz_rego::{Limits, Policy};
use oz_testkit::{CONDITION_TIMEOUT, Tool, Tools, eventually, free_address};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::super::report::{Budget, Report};
use super::super::stats::Values;
use super::probe::Probe;

/// A policy in the form of published policies for transient bindings, before Rego v1.
pub(super) const WINDOWS: &str = include_str!("windows.rego");
const QUESTIONS: i32 = 200;
/// The number of evaluations of the whole corpus in a run.
const ROUNDS: usize = 5;

/// The maximum ratio of a policy to the same policy in the version before.
const SLOWER: f64 = 1.1;

pub(super) async fn measure(runs: u32, other: Option<&Path>, report: &mut Report) -> Result<()> {
    let policy = Policy::compile(&[("windows.rego".to_owned(), WINDOWS.to_owned())])?;
    let mut opa = Opa::start().await?;
    let corpus: Vec<Value> = (0..QUESTIONS)
        .map(|n| question(n, Timestamp::now()))
        .collect();
    for input in &corpus {
        let (ours, theirs) = (ask(&policy, input)?, opa.ask(input).await?);
        let (ours, theirs) = (without_instants(ours), without_instants(theirs));
        ensure!(
            ours == theirs,
            "answers differ for {input}: {ours}; OPA says {theirs}"
        );
    }
    let mut versions = match other {
        Some(other) => Some(Versions::start(other, &corpus).await?),
        None => None,
    };
    for _ in 0..runs {
        let (mut in_process, mut over_http) = (Vec::new(), Vec::new());
        let turns = corpus.iter().enumerate().cycle();
        for (at, input) in turns.take(corpus.len() * ROUNDS) {
            if let Some(versions) = &mut versions {
                versions.ask(at).await?;
            }
            let began = Instant::now();
            ask(&policy, input)?;
            in_process.push(began.elapsed());
            let began = Instant::now();
            opa.ask(input).await?;
            over_http.push(began.elapsed());
        }
        let (in_process, over_http) = (micros(in_process), micros(over_http));
        let (ours, theirs) = (in_process.median(), over_http.median());
        report.add("policy asked in process, p50", "µs", Budget::None, ours);
        let p99 = in_process.percentile(99);
        report.add(
            "policy asked in process, p99",
            "µs",
            Budget::AtMost(1000.0),
            p99,
        );
        report.add("policy asked of OPA, p50", "µs", Budget::None, theirs);
        report.add(
            "policy asked of OPA, p99",
            "µs",
            Budget::None,
            over_http.percentile(99),
        );
        report.add(
            "in process to OPA, p50",
            "x",
            Budget::AtMost(0.5),
            ours / theirs,
        );
        if let Some(versions) = &mut versions {
            versions.report(report);
        }
    }
    Ok(())
}

/// The policy in this version of oz and in another one, each in a separate process; both take turns.
struct Versions {
    here: Probe,
    before: Probe,
    /// The durations of the current run: here, and before.
    taken: (Vec<Duration>, Vec<Duration>),
}

impl Versions {
    async fn start(other: &Path, corpus: &[Value]) -> Result<Self> {
        let here = Probe::start("here", &oz_testkit::repository(), WINDOWS, corpus).await?;
        let before = Probe::start("before", other, WINDOWS, corpus).await?;
        Ok(Self {
            here,
            before,
            taken: (Vec::new(), Vec::new()),
        })
    }

    /// Evaluates the policy for the input at this position in both; the first one changes from turn to turn.
    async fn ask(&mut self, at: usize) -> Result<()> {
        let (here, before) = match self.taken.0.len() % 2 {
            0 => {
                let here = self.here.ask(at).await?;
                (here, self.before.ask(at).await?)
            }
            _ => {
                let before = self.before.ask(at).await?;
                (self.here.ask(at).await?, before)
            }
        };
        self.taken.0.push(here);
        self.taken.1.push(before);
        Ok(())
    }

    /// Reports the run, and begins the next one.
    fn report(&mut self, report: &mut Report) {
        let (here, before) = std::mem::take(&mut self.taken);
        let (here, before) = (micros(here).median(), micros(before).median());
        report.add("policy in its own process, p50", "µs", Budget::None, here);
        report.add("  of the version before, p50", "µs", Budget::None, before);
        report.add(
            "  to the version before, p50",
            "x",
            Budget::AtMost(SLOWER),
            here / before,
        );
    }
}

fn micros(times: Vec<Duration>) -> Values {
    times
        .into_iter()
        .map(|time| time.as_secs_f64() * 1e6)
        .collect()
}

fn ask(policy: &Policy, input: &Value) -> Result<Value> {
    let answer = policy.evaluate("windows", input, Timestamp::now(), &Limits::default())?;
    Ok(answer.document().cloned().unwrap_or_default())
}

/// Returns one of all combinations of windows, children and conditions, with instants far enough from `now`
/// that the order of evaluation is irrelevant.
fn question(number: i32, now: Timestamp) -> Value {
    let at = |minutes: i32| (now + SignedDuration::from_mins(minutes.into())).to_string();
    let off = 10 + number;
    let window = match number % 6 {
        0 => json!({"validFrom": at(-off), "validUntil": at(off)}),
        1 => json!({"validFrom": at(off), "validUntil": at(2 * off)}),
        2 => json!({"validFrom": at(-2 * off), "validUntil": at(-off)}),
        3 => json!({"validFrom": at(-off)}),
        4 => json!({"validFrom": "yesterday", "validUntil": at(off)}),
        _ => json!({"validFrom": at(-off).replace('Z', "+00:00"), "validUntil": at(off)}),
    };
    let name = format!("window-{number}");
    let mut spec = window;
    spec["value"] = json!("v".repeat(usize::try_from(number).unwrap_or_default()));
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let children = match number % 5 {
        0 | 1 => json!({}),
        _ => json!({ &*name: child }),
    };
    let conditions: Vec<Value> = (0..number % 4)
        .map(|each| json!({"type": format!("known-{each}"), "status": "True"}))
        .collect();
    json!({
        "controller": {"spec": {"childResources": [{"apiVersion": "v1", "resource": "configmaps"}]}},
        "parent": {
            "apiVersion": "test.example.org/v1", "kind": "Fleet",
            "metadata": {"name": name, "namespace": "bench", "uid": name},
            "spec": spec, "status": {"conditions": conditions},
        },
        "children": {"ConfigMap.v1": children},
        "related": {}, "finalizing": false,
    })
}

/// Removes instants: the two evaluate at different instants, and write them down.
fn without_instants(mut answer: Value) -> Value {
    let conditions = answer.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    answer
}

/// OPA as a server, which ends with this value, and a connection to it.
struct Opa {
    _process: Child,
    _policy: tempfile::TempDir,
    connection: SendRequest<Full<Bytes>>,
    address: String,
}

impl Opa {
    async fn start() -> Result<Self> {
        let tools = tokio::task::spawn_blocking(|| Tools::obtain(&[Tool::Opa])).await??;
        let policy = tempfile::tempdir()?;
        let file = policy.path().join("windows.rego");
        std::fs::write(&file, WINDOWS).context("failed to write the policy")?;
        let address = free_address()?.to_string();
        let process = Command::new(tools.path(Tool::Opa)?)
            .args(["run", "--server", "--v0-compatible", "--disable-telemetry"])
            .args(["--log-level=error", "--addr", &address])
            .arg(&file)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start OPA")?;
        let stream = eventually("OPA to listen", CONDITION_TIMEOUT, async || {
            Ok(TcpStream::connect(&address).await.ok())
        })
        .await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self {
            _process: process,
            _policy: policy,
            connection,
            address,
        })
    }

    async fn ask(&mut self, input: &Value) -> Result<Value> {
        let request = http::Request::post("/v0/data/windows")
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(input)?))?;
        self.connection.ready().await?;
        let response = self.connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "OPA answered {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }
}
