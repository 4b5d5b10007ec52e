//! The installation of oz and its processes.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use oz_testkit::{
    CONDITION_TIMEOUT, Cluster, Process, cargo_binary, eventually, free_address, shift_clock,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::manifests::as_admin;
use crate::{Options, Service, apply};

/// The namespace that oz runs in.
pub const NAMESPACE: &str = "oz-system";

/// The time that a process may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Applies CRDs, namespace, service accounts, roles and policies from the repository.
///
/// # Errors
/// When the API server refuses one of them.
pub async fn install(cluster: &Cluster) -> Result<()> {
    for part in ["charts/oz/files/crds", "deploy/rbac", "deploy/policies"] {
        apply(cluster, part)?;
    }
    Ok(())
}

/// Applies the kinds, the account and the roles of composites.
///
/// # Errors
/// When the API server refuses one of them.
pub fn install_composites(cluster: &Cluster) -> Result<()> {
    for part in ["charts/oz/files/composites", "deploy/rbac/composites"] {
        apply(cluster, part)?;
    }
    Ok(())
}

/// Applies an object of kind `K`, which need not contain its kind.
///
/// # Errors
/// When the API server refuses it.
pub async fn apply_as<K>(api: &Api<K>, mut object: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    object["apiVersion"] = K::api_version(&()).as_ref().into();
    object["kind"] = K::kind(&()).as_ref().into();
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let parameters = PatchParams::apply("test").force();
    let written = api.patch(&name, &parameters, &Patch::Apply(&object)).await;
    written.with_context(|| format!("failed to apply {name}"))
}

/// Waits until the API server serves every defined kind.
///
/// # Errors
/// When the API server does not serve them within a minute.
pub fn established(cluster: &Cluster) -> Result<()> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args([
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ]);
    run(kubectl)
        .map(drop)
        .context("failed to wait for the CRDs")
}

/// Removes oz's webhooks and its policies from the path of requests, as an administrator could, and waits
/// until the API server no longer applies the policies.
///
/// # Errors
/// When the API server does not respond, or still applies the policies.
pub fn unregister(cluster: &Cluster) -> Result<()> {
    unregister_hooks(cluster)?;
    as_admin(cluster, async |admin| {
        delete_all::<ValidatingAdmissionPolicyBinding>(&admin).await?;
        delete_all::<ValidatingAdmissionPolicy>(&admin).await?;
        deletions_are_seen(&admin).await
    })
}

/// Waits until the API server applies no policy that was deleted before. It observes changes of policies, and
/// of their bindings, in their order: once a policy that is created now is in force, it has observed all of
/// them.
async fn deletions_are_seen(admin: &Client) -> Result<()> {
    let name = format!("fence-{}", Timestamp::now().as_nanosecond());
    let policies = Api::<ValidatingAdmissionPolicy>::all(admin.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone());
    let config_maps = Api::<ConfigMap>::default_namespaced(admin.clone());
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
            "resourceNames": [name],
        }]},
        "validations": [{"expression": "false", "message": name}],
    }});
    apply_as(&policies, policy).await?;
    let binding = json!({"metadata": {"name": name}, "spec": {
        "policyName": name, "validationActions": ["Deny"],
    }});
    apply_as(&bindings, binding).await?;
    let refused = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = "the API server to go without the policies";
    eventually(what, READY_TIMEOUT, async || {
        let refusal = config_maps.create(&dry_run, &refused).await.err();
        let is_fenced = refusal.is_some_and(|it| it.to_string().contains(&name));
        Ok(is_fenced.then_some(()))
    })
    .await?;
    let now = DeleteParams::default();
    bindings.delete(&name, &now).await?;
    policies.delete(&name, &now).await?;
    Ok(())
}

/// Removes oz's webhooks from the path of requests, and keeps its policies.
///
/// # Errors
/// When the API server does not respond.
pub fn unregister_hooks(cluster: &Cluster) -> Result<()> {
    as_admin(cluster, async |admin| {
        delete_all::<MutatingWebhookConfiguration>(&admin).await?;
        delete_all::<ValidatingWebhookConfiguration>(&admin).await
    })
}

/// Deletes every object of a cluster-scoped kind, and waits until they are deleted.
async fn delete_all<K>(admin: &Client) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let all = Api::<K>::all(admin.clone());
    let every = ListParams::default();
    let what = format!("the deletion of every {}", K::kind(&()));
    // Repeated: the API server may execute a request of a process that was killed just before.
    eventually(&what, READY_TIMEOUT, async || {
        all.delete_collection(&DeleteParams::default(), &every)
            .await?;
        let left = all.list_metadata(&every).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}

/// Runs a command for at most half a minute, and returns its output; `None` if it was ended then.
///
/// # Errors
/// When the command cannot be started.
pub fn run_for_a_while(command: &Command) -> Result<Option<Output>> {
    let mut bounded = Command::new("timeout");
    bounded.arg("30").arg(command.get_program());
    bounded.args(command.get_args());
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = bounded.envs(set).output()?;
    Ok(Some(output).filter(|output| output.status.code() != Some(124)))
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// When the command cannot be started or fails; the message contains its output.
pub fn run(mut command: Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("failed to start {command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} ended with {}: {stdout}{stderr}", output.status);
    }
    Ok(stdout)
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    /// The process.
    pub process: Process,
    address: SocketAddr,
}

/// A running webhook.
#[derive(Debug)]
pub struct Webhook {
    /// The process.
    pub process: Process,
    /// The address at which the API server calls its hooks.
    pub serving: SocketAddr,
    address: SocketAddr,
}

impl Operator {
    /// Starts an operator under its own service account, and waits until it is ready.
    ///
    /// # Errors
    /// When the operator ends or does not become ready.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        let mut operator = Self::spawn(cluster, options)?;
        ready("the operator", operator.address, &mut operator.process).await?;
        Ok(operator)
    }

    /// Starts an operator like [`Operator::start`], without waiting.
    ///
    /// # Errors
    /// When the operator cannot be started.
    pub fn spawn(cluster: &Cluster, options: &Options) -> Result<Self> {
        let address = free_address()?;
        let mut command = command(cluster, "oz-operator", options)?;
        command.arg("--metrics-bind-address=0");
        command.arg("--set=installation.policies=true");
        command.arg(format!(
            "--set=operator.terminateSessions={}",
            options.terminate_sessions
        ));
        // Objects that tests read after the expiry still exist on a busy machine.
        command.arg("--set=operator.keepFinished=1h");
        command.arg(format!("--health-probe-bind-address={address}"));
        command.args(&options.flags);
        Ok(Self {
            process: cluster.spawn("oz-operator", command)?,
            address,
        })
    }

    /// Returns the address of its probes and metrics.
    #[must_use]
    pub fn probes(&self) -> SocketAddr {
        self.address
    }

    /// Returns the page of metrics.
    ///
    /// # Errors
    /// When the operator does not respond.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.address, "/metrics").await?.1)
    }

    /// Waits until Roles of grants get reserved names: until the operator has seen that an admission policy
    /// denies these names to others.
    ///
    /// # Errors
    /// When the names do not come into use in time.
    pub async fn reserves(&self) -> Result<()> {
        eventually(
            "reserved names to be in use",
            CONDITION_TIMEOUT,
            async || {
                let metrics = self.metrics().await?;
                Ok(metrics.contains("oz_reserved_names_in_use 1").then_some(()))
            },
        )
        .await
    }

    /// Returns the response to `/readyz`: the code and the text.
    ///
    /// # Errors
    /// When the operator does not respond.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        get(self.address, "/readyz").await
    }
}

impl Webhook {
    /// Starts a webhook under its own service account, registered by URL, and waits until the API
    /// server can call it.
    ///
    /// # Errors
    /// When the webhook ends or does not become ready.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        let serving = free_address()?;
        Self::start_at(cluster, options, serving, serving).await
    }

    /// Starts a webhook like [`Webhook::start`], registered by the URL of `service`, which it joins when it
    /// is ready.
    ///
    /// # Errors
    /// As [`Webhook::start`].
    pub async fn start_behind(
        cluster: &Cluster,
        options: &Options,
        service: &Service,
    ) -> Result<Self> {
        let webhook = Self::start_at(cluster, options, free_address()?, service.address()).await?;
        service.add(webhook.serving);
        Ok(webhook)
    }

    async fn start_at(
        cluster: &Cluster,
        options: &Options,
        serving: SocketAddr,
        reached: SocketAddr,
    ) -> Result<Self> {
        let address = free_address()?;
        let mut command = command(cluster, "oz-webhook", options)?;
        command.arg(format!("--listen={serving}"));
        command.arg(format!("--set=webhook.url=https://{reached}"));
        command.arg(format!("--health-probe-bind-address={address}"));
        // The limits are off unless a test sets them; the last value of a field counts.
        command.args(
            ["waiting", "active", "namespace"].map(|of| format!("--set=webhook.limits.{of}=0")),
        );
        command.args(&options.flags);
        let mut webhook = Self {
            process: cluster.spawn("oz-webhook", command)?,
            serving,
            address,
        };
        ready("the webhook", webhook.address, &mut webhook.process).await?;
        Ok(webhook)
    }

    /// Returns the address of its probes and metrics.
    #[must_use]
    pub fn probes(&self) -> SocketAddr {
        self.address
    }

    /// Returns the page of metrics.
    ///
    /// # Errors
    /// When the webhook does not respond.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.address, "/metrics").await?.1)
    }

    /// Waits until the webhook knows the address from which the API server calls: records before that may be
    /// forged.
    ///
    /// # Errors
    /// When no operator's canary reaches the webhook in time.
    pub async fn knows_an_api_server(&self) -> Result<()> {
        eventually(
            "the webhook to know the API server",
            READY_TIMEOUT,
            async || {
                let metrics = self.metrics().await?;
                let known = metrics.lines().any(|line| {
                    let count = line.strip_prefix("admission_known_callers ");
                    count.is_some_and(|count| count != "0")
                });
                Ok(known.then_some(()))
            },
        )
        .await
    }

    /// Returns the response to `/readyz`: the code and the text.
    ///
    /// # Errors
    /// When the webhook does not respond.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        get(self.address, "/readyz").await
    }
}

/// An installed and running oz.
#[derive(Debug)]
pub struct System {
    /// The webhook.
    pub webhook: Webhook,
    /// The operator.
    pub operator: Operator,
}

impl System {
    /// Installs oz and starts one replica of each of its processes.
    ///
    /// # Errors
    /// When a part cannot be installed or does not become ready.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        Self::start_with(cluster, &Options::default()).await
    }

    /// Starts oz like [`System::start`], with options for the operator.
    ///
    /// # Errors
    /// As [`System::start`].
    pub async fn start_with(cluster: &Cluster, operator: &Options) -> Result<Self> {
        Self::start_as(cluster, &Options::default(), operator).await
    }

    /// Starts oz like [`System::start`], with options for both processes.
    ///
    /// # Errors
    /// As [`System::start`].
    pub async fn start_as(
        cluster: &Cluster,
        webhook: &Options,
        operator: &Options,
    ) -> Result<Self> {
        // Compiled before the wait for readiness: the compilation takes minutes, once.
        for name in ["oz-operator", "oz-webhook"] {
            cargo_binary(name)?;
        }
        install(cluster).await?;
        // One after the other: the first canary of an operator that starts earlier finds no webhook, and the next ones
        // follow after one, two and three seconds.
        let started = Webhook::start(cluster, webhook).await?;
        let operator = Operator::start(cluster, operator).await?;
        // Programs of another build may not report it.
        if webhook.programs.is_none() {
            started.knows_an_api_server().await?;
        }
        Ok(Self {
            webhook: started,
            operator,
        })
    }
}

/// Returns the service account of a program, and its kubeconfig.
///
/// # Errors
/// When the kubeconfig cannot be written.
pub fn identity(cluster: &Cluster, program: &str) -> Result<(String, PathBuf)> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{program}");
    let groups = [
        "system:serviceaccounts",
        &format!("system:serviceaccounts:{NAMESPACE}"),
    ];
    let kubeconfig = cluster.issue_kubeconfig(&user, &groups)?;
    Ok((user, kubeconfig))
}

pub(crate) fn command(cluster: &Cluster, name: &str, options: &Options) -> Result<Command> {
    let program = match &options.programs {
        Some(directory) => directory.join(name),
        None => cargo_binary(name)?,
    };
    let mut command = Command::new(program);
    let kubeconfig = match &options.kubeconfig {
        Some(kubeconfig) => kubeconfig.clone(),
        None => identity(cluster, name)?.1,
    };
    // The value of the chart.
    command.env("MALLOC_ARENA_MAX", "1");
    // The environment of the image, in which only named authorities vouch for servers. A kubeconfig of a test
    // may name a proxy, and no authority.
    if options.kubeconfig.is_none() {
        command.env("SSL_CERT_FILE", "/nonexistent");
        command.env_remove("SSL_CERT_DIR");
    }
    command.arg("--kubeconfig").arg(kubeconfig);
    command.arg(format!("--namespace={NAMESPACE}"));
    command.arg(format!("--replica={}", options.replica));
    if let Some(offset) = &options.clock {
        shift_clock(&mut command, offset)?;
    }
    command.envs(
        options
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    Ok(command)
}

pub(crate) async fn ready(what: &str, address: SocketAddr, process: &mut Process) -> Result<()> {
    eventually(&format!("{what} to be ready"), READY_TIMEOUT, async || {
        if let Some(status) = process.exited()? {
            let log = std::fs::read_to_string(process.stderr()).unwrap_or_default();
            bail!("{what} ended with {status}:\n{log}");
        }
        Ok(get(address, "/readyz")
            .await
            .ok()
            .filter(|(code, _)| *code == 200)
            .map(drop))
    })
    .await
    .with_context(|| std::fs::read_to_string(process.stderr()).unwrap_or_default())
}

/// Sends a request so simple that it requires no library: the probes respond on loopback, without TLS.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("no code")?;
    Ok((code, body.to_owned()))
}
