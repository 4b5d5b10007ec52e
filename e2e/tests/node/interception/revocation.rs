//! The end of what a run may reach: its policy is deleted or narrowed, its Secret replaced, the run ended. The next
//! request is refused, and live connections are closed. Other users may do nothing with the proxy; it is killed,
//! and starts again with the same authority.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use oz_api::conditions;
use oz_api::harness::interception::{DNS_PORT, PROXY_PORT, TRUST_FILE};
use oz_api::harness::{BrokerPolicy, RunPhase};
use oz_e2e::agents::{AGENT, ContainerProcess, Running, processes};
use oz_e2e::upstream::{ANTHROPIC, ECHO};
use oz_e2e::{apply_as, run as run_command};
use oz_runs::pod::RUN_LABEL;
use oz_testkit::{CONDITION_TIMEOUT, Image, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::world::World;

/// The key that replaces the first one.
const NEW_KEY: &str = "sk-ant-api03-another-key-of-the-test-9876543210fedcba";

/// A run that holds a connection, and continues to send requests with the key.
async fn held<'a>(world: &'a World, name: &str) -> Result<Running<'a>> {
    world.agent("held.py").await?;
    let run = world.submit(name, "Hold on.").await?;
    run.report("a stream to be open", |it| it["step"] == "held")
        .await?;
    run.report("a request to succeed", |it| it["result"] == "200")
        .await?;
    ensure!(
        open_connections(world) > 0,
        "the upstream has no connection"
    );
    Ok(run)
}

fn open_connections(world: &World) -> usize {
    let connections = world.upstream.connections();
    let open = connections.iter().filter(|it| it.closed.is_none());
    open.count()
}

/// Checks that the agent's stream is closed, its next requests are refused, and no connection to the upstream is open.
async fn is_cut(world: &World, run: &Running<'_>) -> Result<()> {
    let report = run
        .report("the stream to be cut", |it| it["step"] == "cut")
        .await?;
    let is_last_refused = |report: &[Value]| {
        let sent = report.iter().rfind(|it| it["step"] == "sent");
        sent.is_some_and(|it| it["result"] != "200")
    };
    if !is_last_refused(&report) {
        let refused = |it: &Value| it["step"] == "sent" && it["result"] != "200";
        run.report("a request to be refused", refused).await?;
    }
    connections_are_closed(world).await
}

async fn connections_are_closed(world: &World) -> Result<()> {
    eventually(
        "the connections to be closed",
        CONDITION_TIMEOUT,
        async || Ok((open_connections(world) == 0).then_some(())),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_policy_revokes_key_and_hosts() -> Result<()> {
    let Some(world) = World::start("revoked").await? else {
        return Ok(());
    };
    let run = held(&world, "deleted").await?;
    let policies = world.scene.api::<BrokerPolicy>();
    policies.delete(AGENT, &DeleteParams::default()).await?;
    is_cut(&world, &run).await?;
    run.release().await?;
    run.delete().await
}

#[tokio::test(flavor = "multi_thread")]
async fn narrowed_policy_revokes_the_host() -> Result<()> {
    let Some(world) = World::start("narrowed").await? else {
        return Ok(());
    };
    let run = held(&world, "narrowed").await?;
    world.policy(&[ECHO]).await?;
    is_cut(&world, &run).await?;
    // A grant that comes back is served again, with the same placeholder.
    let lines = run.report("any line", |_| true).await?.len();
    world.policy(&[ANTHROPIC, ECHO]).await?;
    eventually(
        "a request to succeed again",
        CONDITION_TIMEOUT,
        async || {
            let report = run.report("any line", |_| true).await?;
            let mut new = report.iter().skip(lines);
            Ok(new.any(|it| it["result"] == "200").then_some(()))
        },
    )
    .await?;
    run.release().await?;
    run.delete().await
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_secret_replaces_the_key_in_requests() -> Result<()> {
    let Some(world) = World::start("replaced").await? else {
        return Ok(());
    };
    let run = held(&world, "replaced").await?;
    world.upstream.accept_key(NEW_KEY);
    world.set_key(NEW_KEY).await?;
    let has_key = |key: &str| {
        let received = world.upstream.received();
        let last = received.iter().rfind(|it| it.target == "/v1/messages");
        last.is_some_and(|it| it.header("x-api-key") == [key])
    };
    eventually("the new key to be sent", CONDITION_TIMEOUT, async || {
        Ok(has_key(NEW_KEY).then_some(()))
    })
    .await?;
    // The connections with the old key are closed.
    run.report("the stream to be cut", |it| it["step"] == "cut")
        .await?;
    run.release().await?;
    run.delete().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_run_has_no_connection_left() -> Result<()> {
    let Some(world) = World::start("ended").await? else {
        return Ok(());
    };
    let run = held(&world, "ended").await?;
    run.delete().await?;
    connections_are_closed(&world).await
}

/// Runs kubectl as an administrator in the namespace of the test.
fn kubectl(world: &World, arguments: &[&str]) -> Result<Output> {
    let mut kubectl = world.cluster.kubectl("admin");
    kubectl.args(["-n", world.scene.name()]).args(arguments);
    kubectl.stdin(Stdio::null());
    Ok(kubectl.output()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_gets_no_access_to_proxy_and_reporter() -> Result<()> {
    let Some(world) = World::start("access").await? else {
        return Ok(());
    };
    let run = held(&world, "held").await?;
    // kubectl port-forward reads the phase, which the kubelet reports some time after the agent has begun.
    let pod = eventually("the phase of the pod", CONDITION_TIMEOUT, async || {
        let pod = run.pod().await?;
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        Ok((phase == Some("Running")).then(|| pod.name_any()))
    })
    .await?;
    for container in ["proxy", "runtime"] {
        let exec = [
            "exec",
            &pod,
            "-c",
            container,
            "--",
            "/oz-harness",
            "--version",
        ];
        for words in [&exec[..], &["attach", &pod, "-c", container]] {
            let output = kubectl(&world, words)?;
            assert!(!output.status.success(), "{words:?}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("admission webhook"), "{words:?}: {said}");
        }
    }
    let mut forward = world.cluster.kubectl("admin");
    forward.args(["-n", world.scene.name(), "port-forward", &pod, ":15001"]);
    let mut limited = Command::new("timeout");
    limited
        .arg("30")
        .arg(forward.get_program())
        .args(forward.get_args());
    limited.envs(
        forward
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = limited.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("admission webhook"), "{said}");
    address_of_pod_has_no_port_of_the_proxy(&world, &run).await?;
    run.release().await?;
    run.delete().await
}

/// Checks that the proxy accepts no connection at the address of the pod, to which a Service and `services/proxy` lead:
/// the webhook does not know the pods of a Service.
async fn address_of_pod_has_no_port_of_the_proxy(world: &World, run: &Running<'_>) -> Result<()> {
    let pod = run.started().await?;
    let address = pod.status.as_ref().and_then(|it| it.pod_ip.as_ref());
    let address: IpAddr = address.context("the pod has no address")?.parse()?;
    for port in [PROXY_PORT, DNS_PORT] {
        let connected = TcpStream::connect((address, port)).await;
        let error = connected.err().context("a port of the proxy is open")?;
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{port}");
        let service = json!({
            "metadata": {"name": format!("to-{port}")},
            "spec": {"selector": {RUN_LABEL: "held"}, "ports": [{"port": port}]},
        });
        apply_as(&world.scene.api::<Service>(), service).await?;
        let namespace = world.scene.name();
        let path = format!("/api/v1/namespaces/{namespace}/services/http:to-{port}:{port}/proxy/");
        eventually("the API server to connect", CONDITION_TIMEOUT, async || {
            let output = kubectl(world, &["get", "--raw", &path])?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success(), "it has a response: {output:?}");
            ensure!(said.contains("connection refused"), "{said}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_proxy_starts_again_with_its_authority() -> Result<()> {
    let Some(world) = World::start("killed").await? else {
        return Ok(());
    };
    let run = held(&world, "killed").await?;
    let pod = run.started().await?;
    let agent = process_of(&pod, "agent").await?;
    let trusted = Path::new("/proc").join(agent.pid.to_string()).join("root");
    let trusted = trusted.join(TRUST_FILE.trim_start_matches('/'));
    let before = std::fs::read_to_string(&trusted)?;
    assert!(before.contains("BEGIN CERTIFICATE"), "{before}");
    let proxy = process_of(&pod, "proxy").await?;
    let mut kill = Command::new("kill");
    kill.args(["-9", &proxy.pid.to_string()]);
    run_command(kill)?;
    run.report("the stream to be cut", |it| it["step"] == "cut")
        .await?;
    let lines = run.report("any line", |_| true).await?.len();
    let pods = world.scene.api::<Pod>();
    eventually("the proxy to start again", CONDITION_TIMEOUT, async || {
        let pod = pods.get(&pod.name_any()).await?;
        let restarted = processes(&pod)?
            .into_iter()
            .find(|it| it.container == "proxy");
        Ok(restarted.filter(|it| it.pid != proxy.pid).map(drop))
    })
    .await?;
    // The last result of the agent is the one that it reported last: a change back to success, or none at all.
    eventually("a request to succeed", CONDITION_TIMEOUT, async || {
        let report = run.report("any line", |_| true).await?;
        let last = report.iter().rfind(|it| it["step"] == "sent");
        let last = last.context("no request")?;
        ensure!(last["result"] == "200", "{last}, after {lines} lines");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(std::fs::read_to_string(&trusted)?, before);
    run.release().await?;
    run.delete().await
}

/// Returns the process of a container, once this machine has it.
async fn process_of(pod: &Pod, container: &str) -> Result<ContainerProcess> {
    eventually(
        "the process of a container",
        CONDITION_TIMEOUT,
        async || {
            let all = processes(pod)?;
            Ok(all.into_iter().find(|it| it.container == container))
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_interception_fails_the_run() -> Result<()> {
    const BROKEN: &str = "localhost/oz-harness-broken:1";
    let script = b"#!/bin/sh\necho 'the kernel has no nf_tables' >&2\nexit 1\n";
    let Some(world) = World::start_with("broken", BROKEN).await? else {
        return Ok(());
    };
    let image = Image::busybox(BROKEN)?.file("oz-harness", 0o755, script)?;
    world.cluster.import_image(image)?;
    world.agent("agent.py").await?;
    let before = world.upstream.received().len();
    let run = world.submit("broken", "Say hello.").await?;
    assert_eq!(run.ended().await?, RunPhase::Failed);
    let status = run.get().await?.status.context("no status")?;
    let completed = conditions::find(&status.conditions, "Completed");
    let completed = completed.with_context(|| format!("{status:?}"))?;
    assert_eq!(completed.reason, "InterceptionFailed", "{completed:?}");
    assert_eq!(world.upstream.received().len(), before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_that_forbids_interception_fails_the_run() -> Result<()> {
    let Some(world) = World::start("baseline").await? else {
        return Ok(());
    };
    let mut label = world.cluster.kubectl("admin");
    let level = "pod-security.kubernetes.io/enforce=baseline";
    label.args(["label", "namespace", world.scene.name(), level]);
    run_command(label)?;
    world.agent("agent.py").await?;
    let run = world.submit("baseline", "Say hello.").await?;
    assert_eq!(run.ended().await?, RunPhase::Failed);
    let status = run.get().await?.status.context("no status")?;
    let text = serde_json::to_string(&status.conditions)?;
    assert!(text.contains("InterceptionUnavailable"), "{text}");
    assert!(
        text.contains("pod-security.kubernetes.io/enforce"),
        "{text}"
    );
    Ok(())
}
