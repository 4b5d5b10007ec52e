//! The behaviour of the node without oz: pods run, and an exec starts a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use oz_e2e::on_a_terminal;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, fixtures, with_namespace};
use serde_json::json;

use crate::cluster;

/// Returns `kubectl exec` as `user`, with these arguments.
pub(crate) fn exec(cluster: &Cluster, user: &str, namespace: &str, arguments: &[&str]) -> Command {
    let mut command = cluster.kubectl(user);
    command.args(["exec", "-n", namespace]).args(arguments);
    command
}

/// Runs a command to its end with `input` on its standard input.
pub(crate) fn with_input(mut command: Command, input: &[u8]) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input)?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

#[tokio::test]
async fn the_node_is_a_kubelet_with_containerd() -> Result<()> {
    let Some(cluster) = cluster().await? else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(cluster.client("admin").await?);
    let node = nodes.get("node-1").await?;
    let status = node.status.context("no status")?;
    let ready = status
        .conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|condition| condition.status), Some("True".into()));
    let info = status.node_info.context("no information")?;
    assert_eq!(info.kubelet_version, cluster.version());
    assert!(info.container_runtime_version.starts_with("containerd://"));
    Ok(())
}

#[tokio::test]
async fn pod_runs_and_exit_code_is_reported() -> Result<()> {
    let Some(cluster) = cluster().await? else {
        return Ok(());
    };
    with_namespace(cluster, "run", async |namespace| {
        let client = cluster.client("admin").await?;
        let pods: Api<Pod> = Api::namespaced(client, namespace.name());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "once" },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "app",
                    "image": fixtures::IMAGE,
                    "command": ["sh", "-c", "echo from inside; exit 7"],
                }],
            },
        }))?;
        pods.create(&PostParams::default(), &pod).await?;

        let code = eventually("the pod to end", CONDITION_TIMEOUT, async || {
            let status = pods.get("once").await?.status.context("no status")?;
            let state = status
                .container_statuses
                .and_then(|containers| containers.into_iter().next()?.state);
            Ok(state.and_then(|state| Some(state.terminated?.exit_code)))
        })
        .await?;

        assert_eq!(code, 7);
        let log = pods.logs("once", &Default::default()).await?;
        assert_eq!(log, "from inside\n");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_exec_passes_output_exit_code_and_the_end_of_input() -> Result<()> {
    let Some(cluster) = cluster().await? else {
        return Ok(());
    };
    with_namespace(cluster, "streams", async |namespace| {
        let client = cluster.client("admin").await?;
        let pods = fixtures::deployment(&client, namespace.name(), "web", 1).await?;
        let name = pods[0].metadata.name.clone().context("no name")?;
        let admin = |arguments: &[&str]| exec(cluster, "admin", namespace.name(), arguments);

        let said =
            admin(&[&name, "--", "sh", "-c", "hostname; echo aside >&2; exit 3"]).output()?;
        assert_eq!(said.status.code(), Some(3));
        assert_eq!(String::from_utf8(said.stdout)?, format!("{name}\n"));
        assert!(String::from_utf8(said.stderr)?.starts_with("aside\n"));

        let input: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let echoed = with_input(admin(&["-i", &name, "--", "cat"]), &input)?;
        assert!(echoed.status.success());
        assert!(
            echoed.stdout == input,
            "{} bytes came back",
            echoed.stdout.len()
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_exec_on_a_terminal_has_one() -> Result<()> {
    let Some(cluster) = cluster().await? else {
        return Ok(());
    };
    with_namespace(cluster, "terminal", async |namespace| {
        let client = cluster.client("admin").await?;
        fixtures::deployment(&client, namespace.name(), "web", 1).await?;
        let conversation = "echo ready; read line; echo \"got $line\"; tty; exit 4";
        let arguments = ["-ti", "deploy/web", "--", "sh", "-c", conversation];
        let plain = exec(cluster, "admin", namespace.name(), &arguments);
        let mut session = on_a_terminal(&plain)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(session.stdout.take().context("no standard output")?);
        let mut input = session.stdin.take().context("no standard input")?;

        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(output.read_line(&mut line)? > 0, "it ended");
        }
        // A terminal ends a line with the character of the Return key.
        input.write_all(b"hello\r")?;
        let mut rest = String::new();
        output.read_to_string(&mut rest)?;

        assert!(rest.contains("got hello"), "{rest}");
        assert!(rest.contains("/dev/pts/"), "{rest}");
        assert_eq!(session.wait()?.code(), Some(4));
        Ok(())
    })
    .await
}
