//! Runs the gate next to the oz of this process, and provides a grant through the gate and handwritten requests:
//! standard clients correct input that an attacker would send.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use oz_api::{ExecAccessTemplate, RecordedInput, RecordingConfig, RecordingMode};
use oz_core::gate::prefix;
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, exec_request, gate_template, recording_template, refusal,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Stage;

static GATE: OnceCell<(Gate, RecordingStore)> = OnceCell::const_new();
/// The recording settings of a session that must be recorded.
pub(crate) const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::Echoed,
    non_interactive: None,
};
/// Maximum size of the gate's spool in these tests, in bytes.
pub(crate) const SPOOL: u32 = 16 << 20;
/// Maximum number of open sessions of one user in these tests.
pub(crate) const PER_USER: usize = 12;

/// A namespace in which alice has a grant through the gate, by the request `mine`.
pub(crate) struct Gated {
    pub(crate) stage: Stage,
    pub(crate) gate: &'static Gate,
    /// The store in which the gate keeps recordings.
    pub(crate) recordings: &'static RecordingStore,
    pub(crate) pod: String,
}

impl Gated {
    /// Sets up a grant of 10 minutes.
    pub(crate) async fn set(name: &str) -> Result<Self> {
        Self::lasting(name, "10m").await
    }

    /// Sets up a grant of this duration.
    pub(crate) async fn lasting(name: &str, duration: &str) -> Result<Self> {
        Self::by(&gate_template(), name, duration).await
    }

    /// Sets up a grant by a template that requires a recording of every session.
    pub(crate) async fn recorded(name: &str) -> Result<Self> {
        Self::by(&recording_template(REQUIRED), name, "10m").await
    }

    /// Sets up a grant as [`Gated::recorded`] does, without concurrent tests.
    pub(crate) async fn recorded_alone(name: &str) -> Result<Self> {
        let template = recording_template(REQUIRED);
        Self::on(Stage::alone(name).await?, &template, "10m").await
    }

    async fn by(template: &ExecAccessTemplate, name: &str, duration: &str) -> Result<Self> {
        Self::on(Stage::set(name).await?, template, duration).await
    }

    async fn on(stage: Stage, template: &ExecAccessTemplate, duration: &str) -> Result<Self> {
        let (gate, recordings) = GATE
            .get_or_try_init(async || {
                let recordings = RecordingStore::new()?;
                let options = recordings
                    .options()
                    .set("gate.maxSessionsPerUser", PER_USER)
                    .set("gate.recordings.spool.mebibytes", SPOOL >> 20);
                let gate = Gate::start(stage.cluster, &options).await?;
                anyhow::Ok((gate, recordings))
            })
            .await?;
        stage.template(template).await?;
        let alice = stage.requests("alice").await?;
        let asked = alice
            .granted(&exec_request("mine", GATED, duration))
            .await?;
        let pod = asked.pod();
        gets_in(&stage, "alice", "mine", &pod).await?;
        Ok(Self {
            stage,
            gate,
            recordings,
            pod,
        })
    }

    /// Grants a request of bob, and returns the name of its pod.
    pub(crate) async fn of_bob(&self, request: &str) -> Result<String> {
        let bob = self.requests("bob").await?;
        let asked = bob.granted(&exec_request(request, GATED, "10m")).await?;
        gets_in(&self.stage, "bob", request, &asked.pod()).await?;
        Ok(asked.pod())
    }

    /// Returns a path behind the address of a request.
    pub(crate) fn behind(&self, request: &str, rest: &str) -> String {
        format!("{}{rest}", prefix(self.name(), request))
    }

    /// Returns the path of a pod, or of a subresource of it, behind alice's request.
    pub(crate) fn of_pod(&self, pod: &str, rest: &str) -> String {
        let pods = format!("/api/v1/namespaces/{}/pods/{pod}{rest}", self.name());
        self.behind("mine", &pods)
    }

    /// Returns another pod of the workload than the one in the grant.
    pub(crate) fn other_pod(&self) -> Result<String> {
        let names = self.pods.iter().filter_map(|pod| pod.metadata.name.clone());
        let mut others = names.filter(|name| *name != self.pod);
        others.next().context("one pod")
    }

    /// Sends a request as a user to the API server, and returns the response.
    pub(crate) async fn asked(&self, user: &str, request: &Written<'_>) -> Result<(u16, String)> {
        let mut wire = Wire::to_api_server(self, user).await?;
        // A server that denies a request need not read all of it. It may respond and close the connection first.
        let _refused_early = wire.says(request.bytes()).await;
        let answer = wire.rest().await?;
        Ok((code(&answer)?, answer))
    }

    /// Checks that the gate denies a request of alice for this path with this reason.
    pub(crate) async fn refuses(&self, path: &str, reason: &str) -> Result<()> {
        let (code, answer) = self.asked("alice", &Written::get(path)).await?;
        let because = format!("\"reason\":\"{reason}\"");
        let good = (400..500).contains(&code) && answer.contains(&because);
        ensure!(good, "{path}: {answer}");
        Ok(())
    }

    /// Opens a session of a user, on the channels of a WebSocket.
    pub(crate) async fn session(&self, user: &str, request: &str, pod: &str) -> Result<Wire> {
        let command = "command=sh&command=-c&command=echo+here;exec+cat";
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}/exec?{}&stdin=true&stdout=true&stderr=true",
            self.name(),
            command.replace(';', "%3B"),
        );
        let path = self.behind(request, &path);
        let request = Written::get(&path).upgrading("v5.channel.k8s.io");
        let mut wire = Wire::to_api_server(self, user).await?;
        wire.says(request.bytes()).await?;
        let head = wire.head().await?;
        ensure!(code(&head)? == 101, "{head}");
        Ok(wire)
    }
}

impl Deref for Gated {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

/// Waits until a user can connect to a pod by the user's request. The API server applies the rights a moment after
/// the grant.
pub(crate) async fn gets_in(scene: &Scene, user: &str, request: &str, pod: &str) -> Result<()> {
    let command = ["exec", pod, "--", "true"];
    eventually(
        &format!("{user} to get in"),
        CONDITION_TIMEOUT,
        async || {
            let output = scene.through_gate(user, request, &command).output()?;
            match refusal(&output) {
                None => Ok(Some(())),
                Some(why) => anyhow::bail!("{why}"),
            }
        },
    )
    .await
}

/// A request with exactly the bytes to send.
#[derive(Clone, Debug)]
pub(crate) struct Written<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a str,
    goes_on: bool,
}

impl<'a> Written<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn new(method: &'a str, path: &'a str) -> Self {
        Self {
            method,
            path,
            headers: Vec::new(),
            body: "",
            goes_on: false,
        }
    }

    pub(crate) fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds a body, regardless of the headers.
    pub(crate) fn body(mut self, body: &'a str) -> Self {
        self.body = body;
        self
    }

    /// Keeps the connection open for a switch to another protocol, which the headers name.
    pub(crate) fn switching(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// Requests a WebSocket with this subprotocol.
    pub(crate) fn upgrading(mut self, protocol: &'a str) -> Self {
        self.goes_on = true;
        self.header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", protocol)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: kubernetes\r\n",
            self.method, self.path
        );
        if !self.goes_on {
            text.push_str("connection: close\r\n");
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{text}\r\n{}", self.body).into_bytes()
    }
}

/// Returns the status code of a response.
pub(crate) fn code(answer: &str) -> Result<u16> {
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.with_context(|| format!("no answer: {answer:?}"))
}

/// A connection over TLS that carries HTTP/1.1 or the protocol that it was upgraded to.
pub(crate) struct Wire(TlsStream<TcpStream>);

impl Wire {
    /// Connects to the API server as this user.
    pub(crate) async fn to_api_server(scene: &Scene, user: &str) -> Result<Self> {
        Self::connect(&config_of(scene, user).await?).await
    }

    /// Connects directly to the gate, with the certificate of this user of the cluster if one is named.
    pub(crate) async fn to_gate(gated: &Gated, user: Option<&str>) -> Result<Self> {
        let address = format!("https://{}", gated.gate.serving).parse()?;
        let mut config = match user {
            Some(user) => config_of(gated, user).await?,
            None => Config::new("https://127.0.0.1".parse()?),
        };
        config.cluster_url = address;
        config.accept_invalid_certs = true;
        Self::connect(&config).await
    }

    async fn connect(config: &Config) -> Result<Self> {
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let authority = config.cluster_url.authority().context("no address")?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        let name = ServerName::try_from(authority.host().to_owned())?;
        Ok(Self(
            TlsConnector::from(Arc::new(tls))
                .connect(name, stream)
                .await?,
        ))
    }

    pub(crate) async fn says(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.0.write_all(bytes.as_ref()).await?;
        Ok(self.0.flush().await?)
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < 64 << 10, "a head without end");
            let byte = tokio::time::timeout(CONDITION_TIMEOUT, self.0.read_u8()).await;
            match byte.context("no answer")? {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// Waits for these bytes.
    pub(crate) async fn hears(&mut self, wanted: &[u8]) -> Result<()> {
        let mut heard = Vec::new();
        while !heard.windows(wanted.len()).any(|part| part == wanted) {
            let mut part = [0; 4096];
            let length = tokio::time::timeout(CONDITION_TIMEOUT, self.0.read(&mut part)).await;
            let length = length.context("nothing comes")??;
            ensure!(
                length > 0,
                "closed after {:?}",
                String::from_utf8_lossy(&heard)
            );
            heard.extend_from_slice(&part[..length]);
        }
        Ok(())
    }

    /// Reads until the other side closes the connection, in order or abruptly.
    pub(crate) async fn rest(&mut self) -> Result<String> {
        let mut all = Vec::new();
        let read = self.0.read_to_end(&mut all);
        let read = tokio::time::timeout(CONDITION_TIMEOUT, read).await;
        let _broken_off = read.context("it was not closed")?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

async fn config_of(scene: &Scene, user: &str) -> Result<Config> {
    let theirs = Kubeconfig::read_from(scene.cluster.kubeconfig(user))?;
    Ok(Config::from_custom_kubeconfig(theirs, &KubeConfigOptions::default()).await?)
}

/// Returns a frame with this first byte, masked with zeros.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame_head(payload.len() as u64);
    bytes[0] = first;
    bytes.extend(payload);
    bytes
}

/// Returns the head of a frame of binary data with a payload of this length, masked with zeros.
pub(crate) fn frame_head(length: u64) -> Vec<u8> {
    let mut head = vec![0x82, 0x80 | 127];
    head.extend(length.to_be_bytes());
    head.extend([0; 4]);
    head
}

/// Returns a message on a channel.
pub(crate) fn message(channel: u8, text: &str) -> Vec<u8> {
    let mut bytes = frame_head(text.len() as u64 + 1);
    bytes.push(channel);
    bytes.extend(text.as_bytes());
    bytes
}
