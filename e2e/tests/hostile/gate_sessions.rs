//! Input through open sessions of the gate, the number of sessions, and sessions that should outlast the grant.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use oz_api::TargetKind;
use oz_e2e::{exec_request, exec_template, gate_template, records_in, refusal};
use oz_testkit::{eventually, fixtures};
use oz_trail::{Action, Record};
use tokio::net::TcpStream;

use crate::gating::{Gated, PER_USER, Wire, Written, code, frame_head, gets_in, message};
use crate::port::memory;
use crate::record::counted;

const A_MINUTE: Duration = Duration::from_secs(60);
/// Maximum growth of the gate's memory after a large input, in MiB.
const ROOM: u64 = 32;

/// Sending input on channels that do not exist: no other session is affected, and the session ends at the latest when
/// the client disconnects.
#[tokio::test]
async fn channels_that_there_are_not() -> Result<()> {
    let gated = Gated::set("channels").await?;
    for channel in [5, 77, 254] {
        let mut wire = gated.session("alice", "mine", &gated.pod).await?;
        wire.hears(b"here\n").await?;
        // The kubelet may close the session at this point or keep it open.
        let _ = wire.says(message(channel, "hello")).await;
    }
    until_all_sessions_ended(&gated).await?;
    gets_in(&gated, "alice", "mine", &gated.pod).await
}

/// A frame that declares a length of 1 GiB, and a large part of its content: the gate stores none of it, and another
/// session opens at the same time.
#[tokio::test]
async fn a_frame_of_a_gigabyte() -> Result<()> {
    let gated = Gated::set("gigabyte").await?;
    let mut wire = gated.session("alice", "mine", &gated.pod).await?;
    wire.hears(b"here\n").await?;
    let before = memory(&gated.gate.process)?;
    wire.says(frame_head(1 << 30)).await?;
    for _ in 0..64 {
        // The API server closes a connection with a frame that is too large.
        if wire.says(vec![0; 1 << 20]).await.is_err() {
            break;
        }
    }
    gets_in(&gated, "alice", "mine", &gated.pod).await?;
    let after = memory(&gated.gate.process)?;
    assert!(after < before + ROOM, "{before} MiB before, {after} after");
    Ok(())
}

/// Reading nothing of an endless output: the gate buffers a limited part of it, and the session ends with its grant.
#[tokio::test]
async fn a_reader_that_reads_nothing() -> Result<()> {
    let gated = Gated::lasting("reader", "20s").await?;
    let before = memory(&gated.gate.process)?;
    let path = gated.of_pod(
        &gated.pod,
        "/exec?command=cat&command=/dev/zero&stdout=true",
    );
    let request = Written::get(&path).upgrading("v5.channel.k8s.io");
    let mut wire = Wire::to_api_server(&gated, "alice").await?;
    wire.says(request.bytes()).await?;
    assert_eq!(code(&wire.head().await?)?, 101);
    eventually("the session to be cut", A_MINUTE, async || {
        let records = records_in(&gated.gate.process)?;
        let cut = records.iter().any(|record| {
            record.action == Action::SessionTerminated && record.request.namespace == gated.name()
        });
        Ok(cut.then_some(()))
    })
    .await?;
    let after = memory(&gated.gate.process)?;
    assert!(after < before + ROOM, "{before} MiB before, {after} after");
    Ok(())
}

/// Several hundred connections to the gate's port without any data: users still open sessions, and the gate's memory
/// stays limited.
#[tokio::test]
async fn connections_that_say_nothing() -> Result<()> {
    let gated = Gated::set("silent").await?;
    let before = memory(&gated.gate.process)?;
    let silent = (0..400).map(|_| TcpStream::connect(gated.gate.serving));
    let silent = try_join_all(silent).await?;
    let after_hands = (0..100).map(|_| Wire::to_gate(&gated, None));
    let after_hands: Vec<_> = join_all(after_hands).await;
    gets_in(&gated, "alice", "mine", &gated.pod).await?;
    drop((silent, after_hands));
    let after = memory(&gated.gate.process)?;
    assert!(after < before + ROOM, "{before} MiB before, {after} after");
    Ok(())
}

/// Opening more sessions than one user may have: the gate denies one more with 429 and names the field of the limit.
/// Other users open sessions, and so does this user after closing one.
#[tokio::test]
async fn more_sessions_than_one_may_have() -> Result<()> {
    let gated = Gated::set("many").await?;
    let pod = gated.of_bob("bobs").await?;
    let mut open = Vec::new();
    let why = eventually("bob to have too many", A_MINUTE, async || {
        match gated.session("bob", "bobs", &pod).await {
            Ok(wire) => open.push(wire),
            Err(why) => return Ok(Some(why.to_string())),
        }
        ensure!(open.len() <= PER_USER, "{} are open", open.len());
        Ok(None)
    })
    .await?;
    assert!(why.contains(" 429 "), "{why}");
    let refused = gated.through_gate("bob", "bobs", &["exec", &pod, "--", "true"]);
    let refused = refusal(&{ refused }.output()?).context("bob got in")?;
    assert!(refused.contains("gate.maxSessionsPerUser"), "{refused}");
    gets_in(&gated, "alice", "mine", &gated.pod).await?;
    open.pop();
    gets_in(&gated, "bob", "bobs", &pod).await
}

/// Opening a session with an unknown WebSocket protocol: no session opens.
#[tokio::test]
async fn unknown_websocket_protocol_is_refused() -> Result<()> {
    let gated = Gated::set("protocol").await?;
    let path = gated.of_pod(&gated.pod, "/exec?command=cat&stdin=true&stdout=true");
    for protocol in [
        "v9.channel.k8s.io",
        "base64url.bearer.authorization.k8s.io.eA",
        "chat",
    ] {
        let request = Written::get(&path).upgrading(protocol);
        let mut wire = Wire::to_api_server(&gated, "alice").await?;
        wire.says(request.bytes()).await?;
        let head = wire.head().await?;
        ensure!(code(&head)? >= 400, "{protocol}: {head}");
    }
    gets_in(&gated, "alice", "mine", &gated.pod).await
}

/// Reusing a grant for a StatefulSet's pod after another pod with the same name replaces it: the open session ends,
/// and no new one opens.
#[tokio::test]
async fn a_pod_that_was_replaced() -> Result<()> {
    let gated = Gated::set("replaced").await?;
    fixtures::stateful_set(&gated.admin, gated.name(), "db", 1).await?;
    let mut template = exec_template("db", TargetKind::StatefulSet, "db");
    template.spec.access_config = gate_template().spec.access_config;
    gated.template(&template).await?;
    let alice = gated.requests("alice").await?;
    alice.granted(&exec_request("into-db", "db", "10m")).await?;
    gets_in(&gated, "alice", "into-db", "db-0").await?;
    let mut open = gated.session("alice", "into-db", "db-0").await?;
    open.hears(b"here\n").await?;
    let pods: Api<Pod> = gated.api();
    pods.delete("db-0", &DeleteParams::default().grace_period(0))
        .await?;
    fixtures::ready_pods(&gated.admin, gated.name(), "app=db", 1).await?;
    let command = ["exec", "db-0", "--", "true"];
    for _ in 0..5 {
        let output = gated.through_gate("alice", "into-db", &command).output()?;
        ensure!(refusal(&output).is_some(), "alice got into the new pod");
    }
    open.rest().await?;
    Ok(())
}

/// Opening sessions while the grant is being revoked, between the decision and the first byte: the gate denies or
/// ends each, and none continues.
#[tokio::test]
async fn a_grant_that_is_revoked_while_a_session_opens() -> Result<()> {
    let gated = Gated::set("revoked").await?;
    let alice = gated.requests("alice").await?;
    let opening = join_all((0..8).map(|_| gated.session("alice", "mine", &gated.pod)));
    let deleting = async {
        let deleted = alice.api().delete("mine", &DeleteParams::default()).await;
        deleted.map(drop)
    };
    let (opened, deleted) = futures::join!(opening, deleting);
    deleted?;
    let mut refused = Vec::new();
    for opened in opened {
        match opened {
            Ok(mut wire) => drop(wire.rest().await?),
            Err(why) => refused.push(why.to_string()),
        }
    }
    ensure!(
        refused.iter().all(|why| why.contains("HTTP/1.1 4")),
        "{refused:?}"
    );
    let command = ["exec", &gated.pod, "--", "true"];
    let output = gated.through_gate("alice", "mine", &command).output()?;
    ensure!(refusal(&output).is_some(), "alice got in after the end");
    Ok(())
}

/// Disconnecting from as many sessions as one user may have, half of them in the middle of a message: every session
/// ends, and the user opens another one.
#[tokio::test]
async fn sessions_that_break_off() -> Result<()> {
    let gated = Gated::set("broken").await?;
    let pod = gated.of_bob("bobs").await?;
    for round in 0..PER_USER {
        let mut wire = gated.session("bob", "bobs", &pod).await?;
        if round % 2 == 0 {
            wire.says(&message(0, "half of a message")[..12]).await?;
        }
    }
    until_all_sessions_ended(&gated).await?;
    gets_in(&gated, "bob", "bobs", &pod).await
}

/// Waits until the audit trail has the end of every session that the webhook allowed in the namespace.
async fn until_all_sessions_ended(gated: &Gated) -> Result<()> {
    let of_it = |records: Vec<Record>, actions: &[Action]| {
        let mut records = records;
        records.retain(|record| {
            record.request.namespace == gated.name() && actions.contains(&record.action)
        });
        records
    };
    eventually("every session to end", A_MINUTE, async || {
        let webhooks = records_in(&gated.oz()?.webhook.process)?;
        let opened = of_it(webhooks, &[Action::SessionOpened]);
        let ends = [Action::SessionEnded, Action::SessionTerminated];
        let ended = of_it(records_in(&gated.gate.process)?, &ends);
        let (opened_count, ended_count) = (counted(&opened), counted(&ended));
        ensure!(
            opened_count <= ended_count,
            "{opened_count} were opened, and {ended_count} have ended: {opened:?} {ended:?}"
        );
        Ok(Some(()))
    })
    .await
}
