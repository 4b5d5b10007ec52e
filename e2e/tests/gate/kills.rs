//! Kills of gates, and failures of stores, while sessions are open that must be recorded: each session has its record,
//! and the stored recordings are complete. The tests repeat this a few times; many times in the long form
//! (`OZ_LONG=1`).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use oz_api::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, Session, System, exec_request, recording_template,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually, scaled};
use oz_trail::{Action, Record};

use crate::passing::said;
use crate::{TURN, Whole, cluster};

const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::Echoed,
    non_interactive: Some(NonInteractive::Digest),
};
/// The number of open sessions at each kill.
const OPEN: usize = 2;

pub(crate) fn kills() -> usize {
    scaled(3, 100)
}

/// The observed sessions and their records, over all gates.
#[derive(Default)]
struct SessionCounts {
    opened: usize,
    /// The sessions with a recorded recording, by their keys.
    recorded: BTreeSet<String>,
    interrupted: usize,
}

impl SessionCounts {
    /// Reads the records of the gate's process.
    fn records(&mut self, gate: &Gate, scene: &Scene) -> Result<()> {
        let of_it = |one: &Record| {
            one.action == Action::SessionRecorded && one.request.namespace == scene.name()
        };
        for record in records_in(&gate.process)?.into_iter().filter(of_it) {
            let key = record.details.get("session").context("no session")?;
            if self.recorded.insert(key.clone()) && record.reason == "Interrupted" {
                self.interrupted += 1;
            }
        }
        Ok(())
    }
}

/// Opens sessions, each in a separate shell.
async fn open(scene: &Scene, pod: &str) -> Result<Vec<Session>> {
    let command = ["exec", "-i", pod, "--", "sh", "-c", "echo here; exec cat"];
    let mut sessions = Vec::new();
    while sessions.len() < OPEN {
        let session = eventually("alice to get in", CONDITION_TIMEOUT, async || {
            Ok(Session::open(scene.through_gate("alice", "mine", &command)).ok())
        });
        sessions.push(session.await?);
    }
    Ok(sessions)
}

/// Checks that all opened sessions are recorded, and that the stored recordings match the records.
async fn whole(
    scene: &Scene,
    gate: &Gate,
    kept: &RecordingStore,
    seen: &mut SessionCounts,
) -> Result<()> {
    eventually("each session on record", CONDITION_TIMEOUT, async || {
        seen.records(gate, scene)?;
        // Sessions that were attempted while a gate was down may also have records.
        Ok((seen.recorded.len() >= seen.opened).then_some(()))
    })
    .await?;
    let store = kept.store();
    let from = store.to_str().context("a path")?;
    let verify = ["sessions", "verify", "--from", from];
    let verified = eventually(
        "what is stored to be whole",
        CONDITION_TIMEOUT,
        async || {
            let output = scene.ozctl("admin", &verify)?.output()?;
            Ok(output.status.success().then_some(output))
        },
    )
    .await?;
    let stored = stored(&store)?;
    for key in &seen.recorded {
        ensure!(stored.contains(key), "{key} is not stored: {stored:?}");
    }
    writeln!(
        std::io::stderr(),
        "{} sessions opened, {} on record ({} of them interrupted), {} stored; {}",
        seen.opened,
        seen.recorded.len(),
        seen.interrupted,
        stored.len(),
        said(&verified).lines().last().unwrap_or_default()
    )?;
    Ok(())
}

/// Returns the keys of sessions with stored parts.
fn stored(directory: &Path) -> Result<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(&path)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(".cast.zst") {
                let of = path.parent().and_then(|of| of.strip_prefix(directory).ok());
                keys.extend(of.map(|of| of.to_string_lossy().into_owned()));
            }
        }
    }
    Ok(keys)
}

#[tokio::test]
async fn no_session_is_without_its_record_however_often_the_gate_is_killed() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let mut gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "killed").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "2h")).await?;
    let pod = granted.pod();
    let mut seen = SessionCounts::default();
    for _ in 0..kills() {
        let sessions = open(&scene, &pod).await?;
        seen.opened += sessions.len();
        gate.process.kill9();
        for session in &sessions {
            session.ended(CONDITION_TIMEOUT)?;
        }
        seen.records(&gate, &scene)?;
        gate.again(cluster, &kept.options()).await?;
    }
    whole(&scene, &gate, &kept, &mut seen).await
}

#[tokio::test]
async fn a_gate_that_is_killed_while_it_says_what_an_earlier_one_left_leaves_it_to_the_next()
-> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let mut gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "twice").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "2h")).await?;
    let sessions = open(&scene, &granted.pod()).await?;
    let mut seen = SessionCounts {
        opened: sessions.len(),
        ..SessionCounts::default()
    };
    gate.process.kill9();
    for round in 0..kills() {
        // The kill follows as soon as the gate has taken up the spool, while it writes the records.
        gate.begins_again(cluster, &kept.options())?;
        let taken_up = kept.store().with_file_name("spool");
        eventually("the spool to be taken up", CONDITION_TIMEOUT, async || {
            let open = files(&taken_up)?
                .iter()
                .any(|name| name.starts_with("open-"));
            Ok((!open).then_some(()))
        })
        .await
        .with_context(|| format!("in round {round}"))?;
        gate.process.kill9();
        seen.records(&gate, &scene)?;
    }
    gate.again(cluster, &kept.options()).await?;
    whole(&scene, &gate, &kept, &mut seen).await
}

/// Returns the names of all files below a directory.
fn files(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&path) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.path().is_dir() {
                true => left.push(entry.path()),
                false => names.push(entry.file_name().to_string_lossy().into_owned()),
            }
        }
    }
    Ok(names)
}

#[tokio::test]
async fn a_store_that_goes_away_is_not_felt_and_gets_everything_when_it_is_back() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "storeless").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "2h")).await?;
    let pod = granted.pod();
    let mut seen = SessionCounts::default();
    for _ in 0..kills() {
        let sessions = open(&scene, &pod).await?;
        let unavailable = kept.unavailable()?;
        let more = open(&scene, &pod).await?;
        seen.opened += sessions.len() + more.len();
        drop((sessions, more));
        eventually("the sessions on record", CONDITION_TIMEOUT, async || {
            seen.records(&gate, &scene)?;
            Ok((seen.recorded.len() >= seen.opened).then_some(()))
        })
        .await?;
        drop(unavailable);
    }
    whole(&scene, &gate, &kept, &mut seen).await
}

#[tokio::test]
async fn a_session_that_is_not_opened_after_all_has_its_end_on_record() -> Result<()> {
    let whole = Whole::start("unopened").await?;
    let scene = &whole.scene;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let pod = granted.pod();
    let exec = |container: &str| {
        let command = ["exec", &pod, "-c", container, "--", "true"];
        scene.through_gate("alice", "mine", &command).output()
    };
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(exec("app")?.status.success().then_some(()))
    })
    .await?;
    // The hook records the connection before the API server finds that the container does not exist.
    ensure!(!exec("none")?.status.success());
    let of = |records: Vec<Record>, action: Action, reason: &str| {
        let of_it = |one: &Record| {
            one.action == action && one.request.name == "mine" && one.reason == reason
        };
        records.into_iter().filter(of_it).count()
    };
    let opened = records_in(&whole.system.webhook.process)?;
    let opened = opened.iter().any(|one| {
        one.action == Action::SessionOpened
            && one
                .pod
                .as_ref()
                .is_some_and(|pod| pod.container.as_deref() == Some("none"))
    });
    ensure!(opened, "the hook has nothing on record");
    eventually("its end on record", CONDITION_TIMEOUT, async || {
        let ended = of(
            records_in(&whole.gate.process)?,
            Action::SessionEnded,
            "NotOpened",
        );
        Ok((ended > 0).then_some(()))
    })
    .await
}
