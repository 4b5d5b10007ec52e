//! The upstream, the name server, the images and the attempts, from pods without oz: each attempt that a run must not
//! succeed with succeeds there. Without these tests, a test of a run could pass since nothing is reachable at all.

use anyhow::Result;
use oz_e2e::Scene;
use oz_e2e::agents::{AGENT_IMAGE, PlainPod};
use oz_e2e::upstream::ANTHROPIC;

use super::world::{agent_image, upstream};
use super::{attempts, clients};
use crate::alone;

#[tokio::test(flavor = "multi_thread")]
async fn agent_in_a_plain_pod_needs_the_key() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let upstream = upstream(cluster).await?;
    agent_image(cluster).await?;
    let scene = Scene::empty(cluster, "plain").await?;
    let before = upstream.received().len();
    let command = ["python3", "-s", "/agents/agent.py"];
    let pod = PlainPod::start(
        &scene,
        upstream,
        "plain",
        AGENT_IMAGE,
        &command,
        "Say hello.",
    )
    .await?;
    let report = pod
        .report("the agent's answers", |it| it["step"] == "done")
        .await?;
    let texts: Vec<_> = report.iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["You said: Say hello."; 2], "{report:?}");
    let received = upstream.received().split_off(before);
    let hosts: Vec<_> = received.iter().map(|it| it.host.as_str()).collect();
    assert_eq!(hosts, [ANTHROPIC; 3], "{received:?}");
    let asked = upstream.names.questions();
    assert!(asked.iter().any(|it| it.name == ANTHROPIC), "{asked:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_work_in_a_plain_pod_that_trusts_the_upstream() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let upstream = upstream(cluster).await?;
    clients::provide(cluster, upstream).await?;
    let scene = Scene::empty(cluster, "plain").await?;
    let command = ["/bin/sh", "/clients/clients.sh"];
    let prompt = clients::CLIENTS;
    let pod = PlainPod::start(&scene, upstream, "plain", clients::IMAGE, &command, prompt).await?;
    let report = pod
        .report("the clients to end", |it| it["client"] == "end")
        .await?;
    let failed: Vec<_> = report.iter().filter(|it| it["code"] != 0).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let clone = std::fs::read_to_string(pod.workspace()?.join("clone/README"))?;
    assert_eq!(clone, clients::CLONED);
    Ok(())
}

/// The attempts that succeed without oz. The others need a proxy, or rights that no container has.
const REACHED: [&str; 14] = [
    "datagram_to_any_port",
    "quic_datagram",
    "question_to_another_server",
    "question_over_tcp",
    "connection_over_ipv6",
    "datagram_over_ipv6",
    "mapped_address",
    "program_of_root",
    "metadata_address",
    "metadata_address_as_host",
    "host_that_is_not_granted",
    "plain_protocol",
    "invalid_certificates_of_upstreams",
    "foreign_key",
];

#[tokio::test(flavor = "multi_thread")]
async fn attempts_from_a_plain_pod_reach_their_destinations() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let upstream = upstream(cluster).await?;
    agent_image(cluster).await?;
    let scene = Scene::empty(cluster, "plain").await?;
    let before = upstream.packets_to_sinks()?;
    let command = ["python3", "-s", "/agents/attempts.py"];
    let broker = cluster.server_url().replace("https://", "");
    let prompt = attempts::prompt(&broker, &REACHED);
    let pod = PlainPod::start(&scene, upstream, "plain", AGENT_IMAGE, &command, &prompt).await?;
    let report = pod
        .report("the attempts to end", |it| it["attempt"] == "end")
        .await?;
    let missed = report
        .iter()
        .filter(|it| it["reached"] != true && it["attempt"] != "end");
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(report.len(), REACHED.len() + 1, "{report:?}");
    let after = upstream.packets_to_sinks()?;
    for ((address, before), (_, after)) in before.iter().zip(&after) {
        assert!(after > before, "no packet to {address} was counted");
    }
    Ok(())
}
