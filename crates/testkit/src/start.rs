//! The order in which the processes of a cluster start, and what is waited for.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::components::{Component, Layout};
use crate::files::write_private;
use crate::kubeconfig::kubeconfig;
use crate::pki::Authority;
use crate::tools::{Tool, Tools};
use crate::wait::eventually;

/// Starting takes seconds; a machine that compiles at the same time is slower.
const DEADLINE: Duration = Duration::from_secs(120);
const NODE: &str = "node-1";

/// What runs after a start.
pub(crate) struct Started {
    pub(crate) server_url: String,
    /// As the API server says it, for example `v1.35.4`.
    pub(crate) version: String,
    pub(crate) authority: Authority,
    pub(crate) components: Vec<Component>,
}

/// Starts everything in the directory `state` and waits until a pod can be created and will run.
pub(crate) async fn start_processes(
    tools: &Tools,
    state: &Path,
    api_server_flags: &[String],
) -> Result<Started> {
    for directory in ["pki", "logs"] {
        std::fs::create_dir(state.join(directory))
            .with_context(|| format!("failed to make {directory} in {}", state.display()))?;
    }
    let layout = Layout::choose(state)?;
    let authority = Authority::create(&layout.pki())?;
    layout.prepare(&authority)?;

    // The API server waits for etcd by itself.
    let start = |tool, flags: Vec<String>| Component::start(tool, tools, &layout, &flags);
    let mut components = vec![
        start(Tool::Etcd, layout.etcd_flags())?,
        start(Tool::ApiServer, layout.api_server_flags(api_server_flags))?,
    ];
    let client = starter_client(&layout, &authority).await?;
    ready(&mut components, "the API server to be ready", async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(Some(client.request_text(request).await?))
    })
    .await?;
    components.push(start(
        Tool::ControllerManager,
        layout.controller_manager_flags(),
    )?);
    components.push(start(Tool::Scheduler, layout.scheduler_flags())?);
    components.push(start(Tool::Kwok, layout.kwok_flags())?);

    let version = client
        .apiserver_version()
        .await
        .context("failed to ask for the version")?;
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .create(&PostParams::default(), &node()?)
        .await
        .context("failed to create the node")?;
    let accounts = Api::<ServiceAccount>::namespaced(client, "default");
    ready(&mut components, "the default service account", async || {
        Ok(accounts.get_opt("default").await?)
    })
    .await?;
    ready(&mut components, "the node to be ready", async || {
        Ok(nodes.get_opt(NODE).await?.filter(is_schedulable))
    })
    .await?;

    Ok(Started {
        server_url: layout.server_url(),
        version: version.git_version,
        authority,
        components,
    })
}

/// Waits for `probe`, but not once a process has ended.
async fn ready<T>(
    components: &mut [Component],
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<()> {
    eventually(what, DEADLINE, async || {
        if let Err(ended) = components.iter_mut().try_for_each(Component::check) {
            return Ok(Some(Err(ended)));
        }
        Ok(probe().await?.map(|_| Ok(())))
    })
    .await?
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

fn node() -> Result<Node> {
    let size = json!({ "cpu": "1000", "memory": "1Ti", "pods": "100000" });
    let node = json!({
        "metadata": {
            "name": NODE,
            "labels": {
                "kubernetes.io/hostname": NODE,
                "kubernetes.io/os": "linux",
                "type": "kwok",
            },
        },
        "status": { "allocatable": size, "capacity": size },
    });
    serde_json::from_value(node).context("failed to describe the node")
}

fn is_schedulable(node: &Node) -> bool {
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
