//! One webhook for all tests of a binary, running as its own service account on the shared cluster,
//! and helpers for the actions of users.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use oz_api::names::SEAL_KEYS;
use oz_api::{ExecAccessRequest, ExecAccessTemplate};
use oz_core::access::seal::{Keys, Owner};
use oz_core::kinds::{Family, crds};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Process, eventually};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "oz-system";
pub(crate) const OPERATOR: &str = "system:serviceaccount:oz-system:oz-operator";
pub(crate) const WEBHOOK: &str = "system:serviceaccount:oz-system:oz-webhook";

/// A running webhook.
pub(crate) struct Webhook {
    pub(crate) process: Process,
    /// The port on which it serves the hooks.
    pub(crate) port: u16,
    /// The address at which it reports whether it is ready.
    pub(crate) probes: String,
}

/// Returns the cluster with oz installed and the webhook ready.
pub(crate) async fn cluster() -> Result<&'static Cluster> {
    let cluster = Cluster::shared().await?;
    tokio::task::spawn_blocking(move || {
        WEBHOOKS
            .get_or_init(|| {
                install(cluster)
                    .map(Mutex::new)
                    .map_err(|error| format!("{error:#}"))
            })
            .as_ref()
            .map(|_| cluster)
            .map_err(|error| anyhow::anyhow!("{error}"))
    })
    .await?
}

static WEBHOOKS: OnceLock<Result<Mutex<Webhook>, String>> = OnceLock::new();

/// Returns the parsed lines of the record log so far.
pub(crate) fn records() -> Result<Vec<Value>> {
    let webhook = WEBHOOKS.get().context("no webhook runs")?;
    let webhook = webhook
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let lines = webhook.lock().process.lines()?;
    lines
        .iter()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

fn install(cluster: &'static Cluster) -> Result<Webhook> {
    // A separate runtime: those of the tests end while the webhook continues.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let manifests = crds(Family::Access)
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<Vec<_>, _>>()?;
        let file = cluster.state_dir().join("crds.json");
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#,
            manifests.join(",")
        );
        std::fs::write(&file, list)?;
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac");
        let crds = file.display().to_string();
        kubectl(
            cluster,
            "admin",
            &["apply", "--server-side", "-f", &crds, "-f", rbac],
        )?;
        kubectl(
            cluster,
            "admin",
            &["wait", "--for=condition=Established", "-f", &crds],
        )?;
        for account in [OPERATOR, WEBHOOK] {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
            cluster.issue_kubeconfig(account, &groups)?;
        }
        start(cluster, &["--set=webhook.url=https://127.0.0.1:0"]).await
    })
}

/// Starts a webhook and waits until it is ready.
pub(crate) async fn start(cluster: &Cluster, flags: &[&str]) -> Result<Webhook> {
    let mut webhook = spawn(cluster, WEBHOOK, flags).await?;
    let process = &mut webhook.process;
    eventually("the webhook to be ready", CONDITION_TIMEOUT, async || {
        if let Some(status) = process.exited()? {
            return Ok(Some(Err(anyhow::anyhow!("it ended with {status}"))));
        }
        let answer = get(&webhook.probes, "/readyz")?;
        if answer.starts_with("HTTP/1.1 200") {
            return Ok(Some(Ok(())));
        }
        bail!("{answer}; {}", std::fs::read_to_string(process.stderr())?)
    })
    .await??;
    Ok(webhook)
}

/// Starts a webhook that acts as `user` and waits until it serves its probes.
pub(crate) async fn spawn(cluster: &Cluster, user: &str, flags: &[&str]) -> Result<Webhook> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oz-webhook"));
    command
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(user))
        .args([
            "--listen=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--set=webhook.drain=0s",
        ])
        .args(flags);
    let mut process = cluster.spawn("oz-webhook", command)?;
    let serves = |line: &str| line.contains("serving the hooks");
    let line = process
        .wait_for_line("the address of the probes", CONDITION_TIMEOUT, serves)
        .await?;
    let value = |name: &str| {
        let (_, rest) = line
            .split_once(name)
            .with_context(|| format!("no {name} in {line}"))?;
        rest.split_whitespace()
            .next()
            .with_context(|| format!("no {name} in {line}"))
    };
    let (port, probes) = (value("port=")?.parse()?, value("probes=")?.to_owned());
    Ok(Webhook {
        process,
        port,
        probes,
    })
}

/// Returns the response to a GET without TLS, with its head.
pub(crate) fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(CONDITION_TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: oz\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the output of kubectl.
pub(crate) fn kubectl(cluster: &Cluster, user: &str, arguments: &[&str]) -> Result<String> {
    let output = cluster.kubectl(user).args(arguments).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "kubectl {}: {error}",
        arguments.join(" ")
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the keys that verify the webhook's seals.
pub(crate) async fn keys(cluster: &Cluster) -> Result<Keys> {
    let owner = Owner::Webhook;
    let secrets = Api::<Secret>::namespaced(cluster.client("admin").await?, NAMESPACE);
    let published = secrets.get(owner.public_keys()).await?.data;
    let published = published.and_then(|mut data| data.remove(SEAL_KEYS));
    let published = published.context("no public keys are published")?.0;
    let keys = Keys::default();
    keys.trust(owner, &String::from_utf8(published)?)?;
    Ok(keys)
}

/// Gives `group` the right to use oz in a namespace, as its manifests intend.
pub(crate) fn let_use(cluster: &Cluster, namespace: &str, role: &str, group: &str) -> Result<()> {
    let name = format!("{role}-{group}");
    let (role, group) = (format!("--clusterrole={role}"), format!("--group={group}"));
    let arguments = [
        "create",
        "rolebinding",
        &name,
        &role,
        &group,
        "-n",
        namespace,
    ];
    kubectl(cluster, "admin", &arguments).map(drop)
}

/// Returns a template that grants the group devs access for an hour.
pub(crate) fn template(name: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessTemplate",
        "metadata": { "name": name },
        "spec": {
            "accessConfig": {
                "allowedGroups": ["devs"], "defaultDuration": "10m", "maxDuration": "1h",
            },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    })
}

/// Returns a request by a template.
pub(crate) fn request(name: &str, template: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessRequest",
        "metadata": { "name": name },
        "spec": { "templateName": template },
    })
}

pub(crate) fn requests(client: Client, namespace: &str) -> Api<ExecAccessRequest> {
    Api::namespaced(client, namespace)
}

pub(crate) fn parsed<K: DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

/// Returns the status of a denial; an error if the request was admitted.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Result<kube::core::Status> {
    match result {
        Err(kube::Error::Api(status)) => Ok(*status),
        other => bail!("this should have been refused: {other:?}"),
    }
}

/// Creates a template as the administrator and waits until the webhook has seen it: until a request
/// by a user without access is denied because of the template.
pub(crate) async fn create_template(
    cluster: &Cluster,
    namespace: &str,
    template: Value,
) -> Result<()> {
    let admin = cluster.client("admin").await?;
    let template: ExecAccessTemplate = parsed(template)?;
    let name = template.metadata.name.clone().unwrap_or_default();
    let templates = Api::<ExecAccessTemplate>::namespaced(admin.clone(), namespace);
    templates.create(&PostParams::default(), &template).await?;
    let probe: ExecAccessRequest = parsed(request("probe", &name))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually(
        &format!("template {name} to be known"),
        CONDITION_TIMEOUT,
        async || match requests(admin.clone(), namespace)
            .create(&dry_run, &probe)
            .await
        {
            Err(kube::Error::Api(status)) if status.reason == "NotAllowed" => Ok(Some(())),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        },
    )
    .await
}
