//! The end of all open sessions through the gate, at their second, by the gate alone: in a container without a shell,
//! in
//! a container in which the user is root and has killed all other processes, attached, forwarded and followed, with the
//! operator down.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{
    GATED, Gate, Options, STREAMS, Scene, Session, System, WORKLOAD, exec_request, gate_template,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, Image, eventually, fixtures};
use oz_trail::Action;
use serde_json::json;

use crate::alone;

const BUSYBOX: &str = "/bin/busybox";
/// An image with one program, the name of which is not that of a shell, and a file with the word "here".
const BARE: &str = "example.test/bare:1";

async fn pod(scene: &Scene) -> Result<()> {
    let bare = Image::new(BARE, &[BUSYBOX, "sleep", "86400"])
        .file(&BUSYBOX[1..], 0o755, &std::fs::read(BUSYBOX)?)?
        .file("here", 0o644, b"here\n")?;
    scene.cluster.import_image(bare)?;
    let says = "while :; do echo here; sleep 1; done";
    let containers = [
        json!({"name": fixtures::CONTAINER, "image": fixtures::IMAGE}),
        json!({"name": "bare", "image": BARE}),
        json!({"name": "says", "image": fixtures::IMAGE, "command": ["sh", "-c", says]}),
    ];
    fixtures::deployment_of(&scene.admin, scene.name(), WORKLOAD, &containers).await?;
    Ok(())
}

#[tokio::test]
async fn open_streams_end_at_expiry_by_gate_alone() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let options = Gate::operator_options().cutting();
    let mut system = System::start_with(cluster, &options).await?;
    let gate = Gate::start(cluster, &Options::default()).await?;
    let scene = Scene::empty(cluster, "gate-ends").await?;
    pod(&scene).await?;
    let mut template = gate_template();
    template.spec.access_config.operations = STREAMS.to_vec();
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("short", GATED, "45s")).await?;
    let until = granted.status().expires_at.context("no end")?;
    let pod = granted.pod();
    // Two processes remain: the first process of the container, which the kernel protects from all processes inside,
    // and
    // this shell, which ignores signals.
    let root = "trap '' HUP INT TERM; kill -9 -1; echo here; while :; do sleep 1; done";
    let app = fixtures::CONTAINER;
    let ways: [(&str, &[&str]); 5] = [
        (
            "here",
            &[
                "exec", "-i", &pod, "-c", "bare", "--", BUSYBOX, "cat", "/here", "-",
            ],
        ),
        (
            "here",
            &["exec", "-i", &pod, "-c", app, "--", "sh", "-c", root],
        ),
        ("here", &["attach", &pod, "-c", "says"]),
        ("here", &["logs", "-f", &pod, "-c", "says"]),
        ("Forwarding", &["port-forward", &pod, ":80"]),
    ];
    let mut sessions = Vec::new();
    for (word, words) in ways {
        let open = || -> Command { scene.through_gate("alice", "short", words) };
        let title = words.join(" ");
        let session = eventually(&title, CONDITION_TIMEOUT, async || {
            Ok(Some(Session::open_saying(open(), word)?))
        });
        sessions.push((words, session.await?));
    }
    ensure!(sessions.iter().all(|(_, session)| session.is_open()));
    system.operator.process.kill9();
    for (words, session) in &sessions {
        let ended = session
            .ended(CONDITION_TIMEOUT)
            .with_context(|| words.join(" "))?;
        ensure!(ended >= until, "{words:?}: {ended} is before {until}");
    }
    let mut cut = eventually("each end on record", CONDITION_TIMEOUT, async || {
        let mut records = records_in(&gate.process)?;
        records.retain(|one| {
            one.action == Action::SessionTerminated && one.request.namespace == scene.name()
        });
        Ok((records.len() >= sessions.len()).then_some(records))
    })
    .await?;
    for one in &cut {
        ensure!(one.reason == "Expired" && one.time >= until, "{one:?}");
    }
    cut.sort_by_key(|one| one.details.get("way").cloned());
    let ways: Vec<_> = cut
        .iter()
        .filter_map(|one| one.details.get("way"))
        .collect();
    assert_eq!(ways, ["attach", "exec", "exec", "log", "portforward"]);
    Ok(())
}
