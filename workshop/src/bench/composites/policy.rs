//! One policy evaluated in process and, in the same run, by OPA over HTTP, as a composite calls its function.

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

/// A policy in the form of published policies for transient bindings, before Rego v1.
pub(super) const WINDOWS: &str = include_str!("windows.rego");
const QUESTIONS: i32 = 200;
/// The number of evaluations of the whole corpus in a run.
const ROUNDS: usize = 5;

pub(super) async fn measure(runs: u32, report: &mut Report) -> Result<()> {
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
    for _ in 0..runs {
        let (mut in_process, mut over_http) = (Vec::new(), Vec::new());
        for input in corpus.iter().cycle().take(corpus.len() * ROUNDS) {
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
    }
    Ok(())
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
