//! Replacement of a gate: open sessions continue in the gate that stops, for their full duration, and new sessions
//! open,
//! in either gate.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use http::header::CONNECTION;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, AttachedProcess};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use oz_core::gate::prefix;
use oz_e2e::{GATED, Gate, Options, Scene, System, exec_request, gate_template, records_in};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};

use crate::{TURN, cluster};

const OPEN: usize = 50;
/// A command that repeats its input, line by line, until it reads `end`. (kwok's nodes do not forward the end of input
/// to a command.)
const ECHO: [&str; 3] = [
    "sh",
    "-c",
    "while read -r line; do [ \"$line\" = end ] && exit 0; echo \"$line\"; done",
];

/// A session through the gate that the API server chose.
pub(crate) struct Echo {
    _process: AttachedProcess,
    input: Box<dyn AsyncWrite + Unpin + Send>,
    output: BufReader<Box<dyn AsyncRead + Unpin + Send>>,
}

impl Echo {
    pub(crate) async fn open(pods: &Api<Pod>, pod: &str) -> Result<Self> {
        let streams = AttachParams::default().stdin(true).stderr(false);
        let mut process = pods.exec(pod, ECHO, &streams).await?;
        let output = process.stdout().context("no standard output")?;
        let output: Box<dyn AsyncRead + Unpin + Send> = Box::new(output);
        let input = process.stdin().context("no standard input")?;
        let mut echo = Self {
            _process: process,
            input: Box::new(input),
            output: BufReader::new(output),
        };
        echo.says("opened").await?;
        Ok(echo)
    }

    async fn tells(&mut self, word: &str) -> Result<()> {
        self.input.write_all(format!("{word}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Sends a word to the session, and expects it back.
    pub(crate) async fn says(&mut self, word: &str) -> Result<()> {
        self.tells(word).await?;
        let mut line = String::new();
        self.output.read_line(&mut line).await?;
        ensure!(line.trim_end() == word, "{line:?} in place of {word:?}");
        Ok(())
    }

    /// Lets the session end, and checks that it printed nothing more.
    pub(crate) async fn ends(mut self) -> Result<()> {
        self.tells("end").await?;
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).await?;
        ensure!(rest.is_empty(), "{rest:?} at its end");
        Ok(())
    }
}

/// Returns the API of pods for alice through the gate.
pub(crate) async fn through_gate(scene: &Scene, request: &str) -> Result<Api<Pod>> {
    through_gate_as(scene, "alice", request).await
}

/// Returns the API of pods for a user through the gate.
pub(crate) async fn through_gate_as(scene: &Scene, user: &str, request: &str) -> Result<Api<Pod>> {
    let file = Kubeconfig::read_from(scene.cluster.kubeconfig(user))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let path = prefix(scene.name(), request);
    config.cluster_url = format!("{}{path}", scene.cluster.server_url()).parse()?;
    config.read_timeout = None;
    Ok(Api::namespaced(Client::try_from(config)?, scene.name()))
}

/// Checks whether a gate closes the connection after a request.
async fn closes(gate: &Gate) -> Result<bool> {
    let mut config = Config::new(format!("https://{}", gate.serving).parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let request = Request::get("/apis").body(Body::empty())?;
    let answer = Client::try_from(config)?.send(request).await?;
    Ok(answer
        .headers()
        .get(CONNECTION)
        .is_some_and(|value| value == "close"))
}

#[tokio::test]
async fn replacement_of_gate_breaks_no_sessions_and_refuses_no_users() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let options = |replica: &str| {
        let most = OPEN + 10;
        Options::replica(replica)
            .set("gate.sessionDrainSeconds", 600)
            .set("gate.drain", "20s")
            .set("gate.maxSessionsPerUser", most)
    };
    let mut old = Gate::start(cluster, &options("gate-0")).await?;
    let scene = Scene::set(cluster, "rolling").await?;
    scene.template(&gate_template()).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "1h")).await?;
    let (pods, pod) = (through_gate(&scene, "mine").await?, granted.pod());
    let mut sessions = Vec::new();
    while sessions.len() < OPEN {
        let session = eventually("alice to get in", CONDITION_TIMEOUT, async || {
            Ok(Some(Echo::open(&pods, &pod).await?))
        });
        sessions.push(session.await?);
    }
    ensure!(!closes(&old).await?);

    old.process.ask_to_end()?;
    eventually("the gate to stop", CONDITION_TIMEOUT, async || {
        Ok(closes(&old).await?.then_some(()))
    })
    .await?;
    // The API server does not know yet that the gate stops.
    sessions.push(Echo::open(&pods, &pod).await.context("while it stops")?);
    let new = Gate::start(cluster, &options("gate-1")).await?;
    let mut after = Echo::open(&pods, &pod).await.context("by the new one")?;
    for session in &mut sessions {
        session.says("still here").await?;
    }
    ensure!(old.process.exited()?.is_none());
    for session in sessions {
        session.ends().await?;
    }
    let status = eventually("it to end by itself", CONDITION_TIMEOUT, async || {
        old.process.exited()
    })
    .await?;
    ensure!(status.success(), "{status}");
    after.says("still here").await?;
    after.ends().await?;

    let ends = |gate: &Gate| {
        let mut records = records_in(&gate.process)?;
        records.retain(|one| {
            one.request.namespace == scene.name()
                && matches!(one.action, Action::SessionEnded | Action::SessionTerminated)
        });
        Ok::<_, anyhow::Error>(records)
    };
    let ended = ends(&old)?;
    assert_eq!(ended.len(), OPEN + 1);
    let by_itself = |action| action == Action::SessionEnded;
    ensure!(ended.iter().all(|one| by_itself(one.action)), "{ended:?}");
    eventually("its end on record", CONDITION_TIMEOUT, async || {
        Ok((ends(&new)?.len() == 1).then_some(()))
    })
    .await
}
