//! The harness run commands of ozctl, without an operator: the tests write the statuses of the runs.

mod looking;
mod waiting;

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, Workspace,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, cargo_binary, eventually};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static KINDS: OnceCell<()> = OnceCell::const_new();

/// Waits until the API server has made place for a kind: until then it answers that it is about to.
async fn served<K>(client: &Client) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let kind = K::kind(&());
    eventually(
        &format!("{kind} to be served"),
        CONDITION_TIMEOUT,
        async || Ok(api.list(&ListParams::default().limit(1)).await.ok()),
    )
    .await
    .map(drop)
}

/// A namespace with the template `echo`, which requires nothing, and `claude`, which does.
async fn namespace(prefix: &str) -> Result<(&'static Cluster, TestNamespace)> {
    let cluster = crate::cluster().await?;
    KINDS
        .get_or_try_init(async || {
            let client = cluster.client("admin").await?;
            served::<HarnessRun>(&client).await?;
            served::<HarnessTemplate>(&client).await?;
            served::<ClusterHarnessTemplate>(&client).await?;
            served::<Workspace>(&client).await?;
            served::<BrokerPolicy>(&client).await
        })
        .await?;
    let namespace = TestNamespace::create(cluster, prefix).await?;
    let client = cluster.client("admin").await?;
    let templates: Api<HarnessTemplate> = Api::namespaced(client, namespace.name());
    for (name, requires) in [
        ("echo", Value::Null),
        (
            "claude",
            json!({
                "credentials": [{"name": "ANTHROPIC_API_KEY"}],
                "egress": [{"host": "api.anthropic.com", "ports": [443]}],
            }),
        ),
    ] {
        let template = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"image": "agent:1", "command": ["/agent"], "requires": requires},
        }))?;
        templates.create(&PostParams::default(), &template).await?;
    }
    Ok((cluster, namespace))
}

/// Runs ozctl as a cluster administrator with a separate user name, so that no test sees the requests of another.
fn ozctl(cluster: &Cluster, namespace: &TestNamespace, words: &[&str]) -> Result<Command> {
    let user = format!("{}-user", namespace.name());
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", namespace.name()])
        .args(words)
        .env(
            "KUBECONFIG",
            cluster.issue_kubeconfig(&user, &["system:masters"])?,
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn ended(child: Child) -> Result<Answer> {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
    Ok(Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

async fn run(cluster: &Cluster, namespace: &TestNamespace, words: &[&str]) -> Result<Answer> {
    ended(ozctl(cluster, namespace, words)?.spawn()?).await
}

impl Answer {
    fn ended_with(&self, code: i32) -> Result<&Self> {
        ensure!(
            self.code == Some(code),
            "ended with {:?}, not {code}\nstdout: {}\nstderr: {}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self)
    }

    fn says(&self, part: &str) -> Result<&Self> {
        let all = format!("{}{}", self.stdout, self.stderr);
        ensure!(all.contains(part), "no {part:?} in\n{all}");
        Ok(self)
    }
}

async fn runs(cluster: &Cluster, namespace: &TestNamespace) -> Result<Api<HarnessRun>> {
    let client = cluster.client("admin").await?;
    Ok(Api::namespaced(client, namespace.name()))
}

/// The run of this template's, once it is there.
async fn the_run(runs: &Api<HarnessRun>) -> Result<String> {
    eventually("a run", CONDITION_TIMEOUT, async || {
        let list = runs.list(&ListParams::default()).await?;
        Ok(list.items.first().map(ResourceExt::name_any))
    })
    .await
}

async fn becomes(runs: &Api<HarnessRun>, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    runs.patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn event(second: u32, summary: &str) -> Value {
    json!({
        "schemaVersion": "1", "ts": format!("2026-01-31T09:00:{second:02}Z"), "type": "Message",
        "summary": summary,
    })
}

fn completed(reason: &str, message: &str) -> Value {
    json!([{
        "type": "Completed", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-31T09:00:09Z",
    }])
}
