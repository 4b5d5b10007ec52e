//! Agents in harness runs on a real node, for tests and benches: oz with harness runs, and what these runs share: the
//! upstream, images, a template, a policy, and the Secret with the key of Claude's API.

mod objects;
mod plain;
mod processes;
mod running;

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::api::PostParams;
use oz_api::harness::{BrokerPolicy, HarnessRun};
use oz_testkit::{Cluster, Image};
use oz_trail::Record;
use serde_json::json;

pub use self::plain::PlainPod;
pub use self::processes::{ContainerProcess, processes};
pub use self::running::Running;
use crate::programs::Programs;
use crate::upstream::{ANTHROPIC, ECHO, Resolution, Upstream};
use crate::{
    Broker, Gate, Options, Scene, System, apply, established, install, install_harness, records_in,
};

/// The image of oz's container in the pods of runs, by its name in the archive.
pub const HARNESS_IMAGE: &str = concat!("localhost/oz-harness:", env!("CARGO_PKG_VERSION"));
/// The image of the agents in Python.
pub const AGENT_IMAGE: &str = "docker.io/library/agent:dev";
/// The credential of the template.
pub const CREDENTIAL: &str = "ANTHROPIC_API_KEY";
/// The key that the upstream accepts, and that no agent may see.
pub const KEY: &str = "sk-ant-api03-the-real-key-of-the-test-0123456789abcdef";
/// The name of the policy, of the template, and of the Secret.
pub const AGENT: &str = "agent";
/// The ranges of pods, nodes and Services.
pub const DENIED_RANGES: [&str; 4] = [
    "10.0.0.0/16",
    "10.244.0.0/16",
    "10.245.0.0/16",
    "2001:db8::/40",
];

/// oz, a namespace with the objects of the agents, and the upstream.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct AgentScene {
    /// The cluster.
    pub cluster: &'static Cluster,
    /// The namespace.
    pub scene: Scene,
    /// oz without its broker.
    pub system: System,
    /// The broker.
    pub broker: Broker,
    /// The upstream.
    pub upstream: &'static Upstream,
}

/// Starts the upstream of the agents: it accepts [`KEY`], and has names of destinations to which no proxy may connect.
///
/// # Errors
/// As [`Upstream::start`].
pub fn agent_upstream(cluster: &'static Cluster) -> Result<Upstream> {
    let upstream = Upstream::start(cluster)?;
    upstream.accept_key(KEY);
    for (name, addresses) in [
        ("linked.test", &["169.254.169.254"][..]),
        ("private.test", &["10.245.0.1", "192.168.7.7", "fd00::7"]),
        ("nothing.test", &[]),
    ] {
        let addresses = addresses.iter().map(|it| it.parse());
        let addresses = addresses.collect::<Result<_, _>>()?;
        upstream.names.set(name, Resolution::Always(addresses));
    }
    let turns = ["203.0.113.10", "169.254.169.254", "127.0.0.1", "10.0.0.1"];
    let turns = turns
        .map(|it| it.parse())
        .into_iter()
        .collect::<Result<_, _>>()?;
    upstream
        .names
        .set("changing.test", Resolution::InTurn(turns));
    Ok(upstream)
}

/// Imports the image of the agents, [`AGENT_IMAGE`].
///
/// # Errors
/// When Python or busybox is not installed, and as [`Cluster::import_image`].
pub fn import_agents(cluster: &Cluster) -> Result<()> {
    let busybox = std::fs::read("/bin/busybox").context("failed to read busybox")?;
    let image = Programs::default().python(None)?.image(AGENT_IMAGE)?;
    cluster.import_image(agents(image)?.file("bin/busybox-root", 0o4755, &busybox)?)
}

/// Adds the agents to an image.
fn agents(image: Image) -> Result<Image> {
    image
        .file("agents/agent.py", 0o755, include_bytes!("agent.py"))?
        .file("agents/held.py", 0o755, include_bytes!("held.py"))?
        .file("agents/attempts.py", 0o755, include_bytes!("attempts.py"))
}

/// Returns the options of every process of oz.
fn options(upstream: &Upstream, image: &str) -> Options {
    Options::default()
        .harness()
        .set("harness.image", image)
        .set("harness.upstreamCA", json!(upstream.authority))
        .set("harness.seedDeniedRanges", json!(DENIED_RANGES))
}

impl AgentScene {
    /// Starts oz, with the image of oz's container in an archive. The name of the namespace begins with `prefix`.
    ///
    /// # Errors
    /// When a part cannot be installed or does not become ready.
    pub async fn start_with_archive(
        cluster: &'static Cluster,
        upstream: &'static Upstream,
        prefix: &str,
        archive: &Path,
    ) -> Result<Self> {
        cluster.import_image_archive(archive)?;
        import_agents(cluster)?;
        Self::start(cluster, upstream, prefix, HARNESS_IMAGE).await
    }

    /// Starts oz, with an imported image of oz's container.
    ///
    /// # Errors
    /// As [`AgentScene::start_with_archive`].
    pub async fn start(
        cluster: &'static Cluster,
        upstream: &'static Upstream,
        prefix: &str,
        image: &str,
    ) -> Result<Self> {
        install(cluster).await?;
        install_harness(cluster)?;
        established(cluster)?;
        let options = options(upstream, image);
        let system = System::start_as(cluster, &options, &options).await?;
        apply(cluster, "deploy/policies/harness")?;
        let serving = Gate::free_address(cluster)?;
        let broker = Broker::start_for_pods(cluster, &options, serving).await?;
        let scene = Scene::empty(cluster, prefix).await?;
        let this = Self {
            cluster,
            scene,
            system,
            broker,
            upstream,
        };
        this.set_key(KEY).await?;
        this.scene.let_broker_read().await?;
        Ok(this)
    }

    /// Stores the key of Claude's API, like [`Scene::agent_key`].
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn set_key(&self, key: &str) -> Result<()> {
        self.scene.agent_key(key).await
    }

    /// Applies the policy of the template, like [`Scene::agent_policy`].
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn policy(&self, hosts: &[&str]) -> Result<BrokerPolicy> {
        self.scene.agent_policy(hosts).await
    }

    /// Applies the template, like [`Scene::agent_template`].
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn template(
        &self,
        image: &str,
        command: &[&str],
        hosts: &[&str],
        credentials: &[&str],
    ) -> Result<()> {
        let template = self
            .scene
            .agent_template(image, command, hosts, credentials);
        template.await
    }

    /// Applies a template of an agent in Python with the key and [`ANTHROPIC`], and the policy that grants both.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn agent(&self, script: &str) -> Result<()> {
        let script = format!("/agents/{script}");
        let command = ["python3", "-s", &script];
        self.policy(&[ANTHROPIC, ECHO]).await?;
        self.template(AGENT_IMAGE, &command, &[ANTHROPIC], &[CREDENTIAL])
            .await
    }

    /// Submits a run of the template.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn submit(&self, name: &str, prompt: &str) -> Result<Running<'_>> {
        let run = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"templateRef": {"name": AGENT}, "prompt": prompt},
        }))?;
        let runs = self.scene.api::<HarnessRun>();
        runs.create(&PostParams::default(), &run).await?;
        Ok(Running::new(self, name))
    }

    /// Returns the audit records about a run, of every process, in order of their time.
    ///
    /// # Errors
    /// When the output of a process cannot be read.
    pub fn records(&self, run: &str) -> Result<Vec<Record>> {
        let mut all = Vec::new();
        for process in [
            &self.system.operator.process,
            &self.system.webhook.process,
            &self.broker.process,
        ] {
            all.extend(records_in(process)?);
        }
        all.retain(|it| it.request.namespace == self.scene.name() && it.request.name == run);
        all.sort_by_key(|it| it.time);
        Ok(all)
    }
}
