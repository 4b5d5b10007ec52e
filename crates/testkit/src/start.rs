//! The order in which the processes of a cluster start, and the conditions between the steps.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::ClusterOptions;
use crate::compile::say;
use crate::components::{Component, Layout};
use crate::files::write_private;
use crate::kubeconfig::kubeconfig;
use crate::node::{NAME, Namespaces, Node, import_first};
use crate::pki::Authority;
use crate::system::Signal;
use crate::tool::Tool;
use crate::tools::Tools;
use crate::wait::eventually;

/// Starting takes seconds; a machine that compiles at the same time is slower.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The result of a start.
pub(crate) struct Started {
    pub(crate) server_url: String,
    /// The version that the API server reports, for example `v1.35.4`.
    pub(crate) version: String,
    pub(crate) authority: Authority,
    pub(crate) processes: Processes,
}

/// The processes of a cluster. Dropped from top to bottom: the processes in the node's namespaces
/// end with the namespaces, in order.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    node: Option<Namespaces>,
    components: Vec<Component>,
}

impl Processes {
    /// Returns the names and process ids.
    pub(crate) fn describe(&self) -> BTreeMap<String, u32> {
        self.components.iter().map(Component::describe).collect()
    }

    /// Kills the API server without warning and starts it again.
    pub(crate) fn restart_api_server(&mut self) -> Result<()> {
        let mut components = self.components.iter_mut();
        let api_server = components.find(|it| it.name() == Tool::ApiServer.name());
        api_server
            .context("failed to find the API server")?
            .restart()
    }

    /// Waits for `probe`, but not once a process has ended.
    async fn ready<T>(
        &mut self,
        what: &str,
        mut probe: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<()> {
        eventually(what, START_TIMEOUT, async || {
            if let Err(ended) = self.components.iter_mut().try_for_each(Component::check) {
                return Ok(Some(Err(ended)));
            }
            Ok(probe().await?.map(|_| Ok(())))
        })
        .await?
    }
}

/// Starts all processes in the directory `state` and waits until pods can be created and run.
pub(crate) async fn start_processes(
    tools: &Tools,
    state: &Path,
    options: &ClusterOptions,
) -> Result<Started> {
    for directory in ["pki", "logs"] {
        std::fs::create_dir(state.join(directory))
            .with_context(|| format!("failed to make {directory} in {}", state.display()))?;
    }
    let mut processes = Processes::default();
    let (address, node_address) = match options.node {
        Node::Kwok => (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        Node::Real => {
            let node = processes.node.insert(Namespaces::create(state).await?);
            (node.machine_address(), node.address())
        }
    };
    let layout = Layout::choose(state, address, node_address)?;
    let authority = Authority::create(&layout.pki())?;
    layout.prepare(&authority)?;

    // The API server waits for etcd automatically.
    let start = |tool, flags: Vec<String>| Component::start(tool, tools, &layout, &flags);
    processes.components = vec![
        start(Tool::Etcd, layout.etcd_flags())?,
        start(Tool::ApiServer, api_server_flags(tools, &layout, options)?)?,
    ];
    prepare_node(&mut processes, &layout).await?;
    let client = starter_client(&layout, &authority).await?;
    processes
        .ready("the API server to be ready", async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(Some(client.request_text(request).await?))
        })
        .await?;
    let manager = layout.controller_manager_flags();
    processes
        .components
        .push(start(Tool::ControllerManager, manager)?);
    processes
        .components
        .push(start(Tool::Scheduler, layout.scheduler_flags())?);
    start_node(&mut processes, tools, &layout, &client).await?;

    let version = client
        .apiserver_version()
        .await
        .context("failed to ask for the version")?;
    Ok(Started {
        server_url: layout.server_url(),
        version: version.git_version,
        authority,
        processes,
    })
}

/// Returns the flags of the API server: those that the version has which it emulates, or else its own version.
fn api_server_flags(
    tools: &Tools,
    layout: &Layout,
    options: &ClusterOptions,
) -> Result<Vec<String>> {
    let mut flags = options.api_server_flags.clone();
    let minor = match options.emulated_minor {
        Some(minor) => {
            flags.push(format!("--emulated-version=1.{minor}"));
            minor
        }
        None => tools.minor()?,
    };
    Ok(layout.api_server_flags(minor, &flags))
}

/// Prepares a real node while the API server starts: containerd and images.
async fn prepare_node(processes: &mut Processes, layout: &Layout) -> Result<()> {
    let Some(node) = &processes.node else {
        return Ok(());
    };
    node.prepare(&layout.state)?;
    let containerd = node.containerd()?;
    processes.components.push(Component::run(
        "containerd",
        containerd,
        Signal::Kill,
        layout,
    )?);
    let state = &layout.state;
    processes
        .ready("containerd to take images", async || {
            import_first(state).map(Some)
        })
        .await
}

/// Starts the components of the node, and waits until it accepts pods.
async fn start_node(
    processes: &mut Processes,
    tools: &Tools,
    layout: &Layout,
    client: &kube::Client,
) -> Result<()> {
    let nodes = Api::<NodeObject>::all(client.clone());
    if let Some(node) = &processes.node {
        let kubelet = node.kubelet(tools.path(Tool::Kubelet)?, &layout.state);
        let name = Tool::Kubelet.name();
        processes
            .components
            .push(Component::run(name, kubelet, Signal::Kill, layout)?);
        let proxy = node.proxy(tools.path(Tool::KubeProxy)?);
        let name = Tool::KubeProxy.name();
        processes
            .components
            .push(Component::run(name, proxy, Signal::Kill, layout)?);
    } else {
        let kwok = Component::start(Tool::Kwok, tools, layout, &layout.kwok_flags())?;
        processes.components.push(kwok);
        nodes
            .create(&PostParams::default(), &node()?)
            .await
            .context("failed to create the node")?;
    }
    let began = Instant::now();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    processes
        .ready("the node to be ready", async || {
            Ok(nodes.get_opt(NAME).await?.filter(is_schedulable))
        })
        .await?;
    if processes.node.is_some() {
        say(&format!(
            "node ready {:.1} s after the kubelet started",
            began.elapsed().as_secs_f64()
        ));
    }
    processes
        .ready("the default service account", async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await
}

async fn starter_client(layout: &Layout, authority: &Authority) -> Result<kube::Client> {
    let user = "oz-testkit";
    let identity = authority.client(user, &["system:masters"])?;
    let content = kubeconfig(
        &layout.server_url(),
        authority.certificate(),
        user,
        &identity,
    )?;
    let path = layout.state.join("starter.kubeconfig");
    write_private(&path, &content)?;
    crate::access::client(&path).await
}

fn node() -> Result<NodeObject> {
    let size = json!({
        "cpu": "1000", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "100000",
    });
    let node = json!({
        "metadata": {
            "name": NAME,
            "labels": {
                "kubernetes.io/hostname": NAME,
                "kubernetes.io/os": "linux",
                "type": "kwok",
            },
        },
        "status": { "allocatable": size, "capacity": size },
    });
    serde_json::from_value(node).context("failed to describe the node")
}

fn is_schedulable(node: &NodeObject) -> bool {
    let untainted = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_ref())
        .is_none_or(|taints| {
            taints
                .iter()
                .all(|taint| taint.effect == "PreferNoSchedule")
        });
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    untainted && is_ready
}
