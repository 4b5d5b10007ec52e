//! Protocols, frames and options that two components could read differently, in sessions that must be recorded.

use std::time::Duration;

use anyhow::{Result, ensure};
use oz_e2e::{records_in, refusal};
use oz_testkit::eventually;
use oz_trail::Action;
use serde_json::Value;

use crate::gating::{Gated, Wire, Written, code, frame, frame_head, gets_in, message};

const A_MINUTE: Duration = Duration::from_secs(60);
/// The headers of a WebSocket session that the gate can record.
const WEB_SOCKET: [(&str, &str); 3] = [
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-protocol", "v5.channel.k8s.io"),
];

/// Requesting SPDY for a session that must be recorded, alone or with a WebSocket, in one header, in several or by
/// the versions of its streams, or an unsupported WebSocket version or subprotocol, so that the recorder uses another
/// header than the API server and the kubelet: no session opens, and the denial of SPDY alone names the version of
/// kubectl that is required.
#[tokio::test]
async fn spdy_with_or_without_websocket_is_refused_for_recorded_session() -> Result<()> {
    let gated = Gated::recorded("spdy").await?;
    let path = gated.of_pod(
        &gated.pod,
        "/exec?command=id&stdin=true&stdout=true&stderr=true",
    );
    let before = opened(&gated)?;
    for upgrade in [
        &[("upgrade", "SPDY/3.1")][..],
        &[("upgrade", "SPDY/3.1"), ("upgrade", "websocket")],
        &[("upgrade", "websocket"), ("upgrade", "SPDY/3.1")],
        &[("upgrade", "websocket, SPDY/3.1")],
        &[("upgrade", "SPDY/3.1, websocket")],
        &[
            ("upgrade", "websocket"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ],
        &[
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ],
        &[("upgrade", "websocket"), ("sec-websocket-version", "8")],
        &[
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v4.base64.channel.k8s.io"),
        ],
    ] {
        for method in ["GET", "POST"] {
            let mut request = Written::new(method, &path).switching();
            request = request.header("connection", "Upgrade");
            for (name, value) in upgrade.iter().chain(&WEB_SOCKET) {
                request = request.header(name, value);
            }
            let mut wire = Wire::to_api_server(&gated, "alice").await?;
            wire.says(request.bytes()).await?;
            let head = wire.head().await?;
            ensure!(code(&head)? >= 400, "{upgrade:?}: {head}");
        }
    }
    // The request of a kubectl older than 1.30.
    let request = Written::new("POST", &path)
        .switching()
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io");
    let mut wire = Wire::to_api_server(&gated, "alice").await?;
    wire.says(request.bytes()).await?;
    let head = wire.head().await?;
    ensure!(code(&head)? == 403, "{head}");
    let mut old = gated.through_gate("alice", "mine", &["exec", &gated.pod, "--", "id"]);
    old.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    let why = refusal(&old.output()?).unwrap_or_default();
    ensure!(why.contains("kubectl 1.30 or newer"), "{why}");
    ensure!(opened(&gated)? == before, "a session was opened");
    gets_in(&gated, "alice", "mine", &gated.pod).await
}

/// Returns the number of sessions that the connect hook allowed in the namespace.
fn opened(gated: &Gated) -> Result<usize> {
    let mut records = records_in(&gated.oz()?.webhook.process)?;
    records.retain(|record| {
        record.action == Action::SessionOpened && record.request.namespace == gated.name()
    });
    Ok(records.len())
}

/// Hiding input from the recording in malformed frames, with continuations of no message, reserved opcodes and bits,
/// a length of 2^63 or no mask: the gate ends the session with that reason, and the command receives none of this
/// input. A valid message in several frames reaches the command and the recording whole.
#[tokio::test]
async fn frames_that_hide_input_end_session() -> Result<()> {
    let gated = Gated::recorded("frames").await?;
    let mut reserved_length = frame_head(1 << 63);
    reserved_length.extend(b"\0hidden\n");
    let frames = [
        frame(0x80, b"\0hidden\n"),
        frame(0x8b, b"\0hidden\n"),
        frame(0x8f, b"\0hidden\n"),
        frame(0x83, b"\0hidden\n"),
        frame(0xc2, b"\0hidden\n"),
        [&[0x82, 8], b"\0hidden\n".as_slice()].concat(),
        reserved_length,
    ];
    let count = frames.len();
    for bytes in frames {
        let mut wire = gated.session("alice", "mine", &gated.pod).await?;
        wire.hears(b"here\n").await?;
        wire.says(&frame(0x02, b"\0in t")).await?;
        wire.says(&frame(0x89, b"there?")).await?;
        wire.says(&frame(0x80, b"wo\n")).await?;
        wire.hears(b"in two\n").await?;
        wire.says(&bytes).await?;
        // The gate does not read the bytes after the malformed frame.
        let _ = wire.says(message(0, "hidden behind it\n")).await;
        let rest = wire.rest().await?;
        ensure!(!rest.contains("hidden"), "{bytes:?}: {rest}");
        ensure!(rest.contains("oz: the client sent"), "{bytes:?}: {rest}");
    }
    let reasons = eventually("the sessions to be cut", A_MINUTE, async || {
        let mut cut = records_in(&gated.gate.process)?;
        cut.retain(|record| {
            record.action == Action::SessionTerminated && record.request.namespace == gated.name()
        });
        let reasons: Vec<String> = cut.into_iter().map(|record| record.reason).collect();
        Ok((reasons.len() >= count).then_some(reasons))
    })
    .await?;
    ensure!(
        reasons
            .iter()
            .all(|reason| ["FrameMalformed", "MessageTooLong"].contains(&reason.as_str())),
        "{reasons:?}"
    );
    let store = gated.recordings.store();
    let from = store.to_string_lossy();
    let words = ["sessions", "transcript", "mine", "--from", &from];
    eventually("the recording to be stored", A_MINUTE, async || {
        let output = gated.ozctl("admin", &words)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(!text.contains("hidden"), "{text}");
        Ok(text.contains("in two").then_some(()))
    })
    .await
}

/// Requesting a terminal as `True`, `yes` or `%74rue`, as an option with an empty value, or twice with two values, of
/// which the API server reads one: the gate sends the API server `tty=true`, and denies a repeated option.
#[tokio::test]
async fn a_terminal_in_other_words() -> Result<()> {
    let gated = Gated::recorded("flags").await?;
    for (words, count) in ["tty=True", "tty=yes", "tty=%74rue", "tty="]
        .into_iter()
        .zip(1..)
    {
        let rest = format!("/exec?command=true&stdin=1&stdout=true&{words}");
        let path = gated.of_pod(&gated.pod, &rest);
        let request = Written::get(&path).upgrading("v5.channel.k8s.io");
        let mut wire = Wire::to_api_server(&gated, "alice").await?;
        wire.says(request.bytes()).await?;
        let head = wire.head().await?;
        ensure!(code(&head)? == 101, "{words}: {head}");
        drop(wire);
        // The API server writes its audit entry for the session when the session ends.
        eventually("the API server's record of it", A_MINUTE, async || {
            let sent = asked_of_the_pod(&gated)?;
            let so = sent.iter().filter(|uri| {
                uri.contains("command=true")
                    && uri.contains("stdin=true")
                    && uri.contains("tty=true")
            });
            Ok((so.count() >= count).then_some(()))
        })
        .await?;
    }
    for twice in [
        "tty=false&tty=true",
        "tty=0&tty=1",
        "stdin=true&stdin=false",
    ] {
        let path = gated.of_pod(&gated.pod, &format!("/exec?command=true&{twice}"));
        gated.refuses(&path, "OptionRepeated").await?;
    }
    Ok(())
}

/// Returns the URIs of the exec requests of the gate to the pod, each once, from the API server's audit log.
fn asked_of_the_pod(gated: &Gated) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(gated.cluster.state_dir().join("audit.log"))?;
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let start = format!(
        "/api/v1/namespaces/{}/pods/{}/exec?",
        gated.name(),
        gated.pod
    );
    let asked = events.filter(|event| event["stage"] == "ResponseComplete");
    let uris = asked.filter_map(|event| event["requestURI"].as_str().map(ToOwned::to_owned));
    Ok(uris.filter(|uri| uri.starts_with(&start)).collect())
}
