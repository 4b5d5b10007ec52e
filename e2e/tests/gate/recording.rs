//! Recordings of sessions: their content, their viewers, and the data that a killed gate leaves.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use oz_api::{RecordingConfig, RecordingMode};
use oz_e2e::{
    GATED, Gate, Options, RecordingStore, Scene, Session, System, exec_request, recording_template,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Record};

use crate::passing::said;
use crate::{TURN, cluster};

pub(crate) const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: oz_api::RecordedInput::Echoed,
    non_interactive: Some(oz_api::NonInteractive::Digest),
};

/// Returns the records of an action about a scene, once there are this many.
pub(crate) async fn recorded(
    gate: &Gate,
    scene: &Scene,
    action: Action,
    count: usize,
) -> Result<Vec<Record>> {
    eventually(
        &format!("{count} of {action}"),
        CONDITION_TIMEOUT,
        async || {
            let mut records = records_in(&gate.process)?;
            records.retain(|one| one.action == action && one.request.namespace == scene.name());
            Ok((records.len() >= count).then_some(records))
        },
    )
    .await
}

/// Returns all stored parts, or files of the spool with such names.
pub(crate) fn parts(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(parts(&path)?);
        } else if path.to_string_lossy().contains(".cast") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[tokio::test]
async fn a_session_is_recorded_played_by_who_may_and_known_to_be_whole() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "recording").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    scene.may_view_recordings("auditors").await?;
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let script = "printf 'seen\\033]0;owned\\007\\n'; echo wrong >&2";
    let command = ["exec", &pod, "--", "sh", "-c", script];
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let output = scene.through_gate("alice", "mine", &command).output()?;
        Ok(output.status.success().then_some(()))
    })
    .await?;
    let records = recorded(&gate, &scene, Action::SessionRecorded, 1).await?;
    ensure!(
        records[0]
            .user
            .as_ref()
            .is_some_and(|user| user.user == "alice"),
        "{records:?}"
    );
    let ended = recorded(&gate, &scene, Action::SessionEnded, 1).await?;
    assert_eq!(
        ended[0].details.get("session"),
        records[0].details.get("session")
    );
    assert_eq!(
        ended[0].details.get("way").map(String::as_str),
        Some("exec")
    );
    played_by_who_may(&gate, &scene).await?;
    let session = records[0].details.get("session");
    known_to_be_whole(&scene, &kept, &pod, session.context("no session")?)
}

/// Checks that a user with the right sees the recording, with an audit record, and that other users, including alice
/// herself, do not.
async fn played_by_who_may(gate: &Gate, scene: &Scene) -> Result<()> {
    let viewer = format!("{}-auditors", scene.name());
    let watch = |user: &str, verb: &str| {
        Ok::<_, anyhow::Error>(scene.ozctl(user, &["sessions", verb, "mine"])?.output()?)
    };
    let text = eventually(
        "the recording to be stored",
        CONDITION_TIMEOUT,
        async || {
            let output = watch(&viewer, "transcript")?;
            Ok(output.status.success().then_some(output.stdout))
        },
    )
    .await?;
    // The streams of a command without a terminal arrive in any order.
    let text = String::from_utf8(text)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["seen", "wrong"]);
    let played = watch(&viewer, "play")?;
    ensure!(played.status.success(), "{}", said(&played));
    let shown = String::from_utf8(played.stdout)?;
    ensure!(
        shown.contains("seen\r\n") && !shown.contains("owned"),
        "{shown:?}"
    );
    let told = String::from_utf8(played.stderr)?;
    ensure!(told.contains("oz: alice in pod"), "{told}");
    let refused = watch("alice", "play")?;
    ensure!(
        !refused.status.success() && said(&refused).contains("oz-recording-viewer"),
        "{}",
        said(&refused)
    );
    let viewed = recorded(gate, scene, Action::RecordingPlayed, 1).await?;
    ensure!(
        viewed
            .iter()
            .all(|one| one.user.as_ref().is_some_and(|user| user.user == viewer)),
        "{viewed:?}"
    );
    Ok(())
}

/// The report about a recording without faults.
const AS_RECORDED: &str = "parts, as recorded";

/// Checks that the recording verifies, until a byte of it is changed.
fn known_to_be_whole(scene: &Scene, kept: &RecordingStore, pod: &str, session: &str) -> Result<()> {
    let verify = |from: &[&str]| {
        Ok::<_, anyhow::Error>(
            scene
                .ozctl("admin", &[&["sessions", "verify"], from].concat())?
                .output()?,
        )
    };
    let through_gate = verify(&[])?;
    ensure!(through_gate.status.success(), "{}", said(&through_gate));
    let store = kept.store();
    let from = ["--from", store.to_str().context("a path")?];
    ensure!(verify(&from)?.status.success());
    // The trail covers all namespaces: the recordings of other tests are not in this directory.
    let in_directory = format!("--recordings={}", store.display());
    let with_the_trail = |recordings: &str, finding: &str| -> Result<()> {
        let words = ["audit", "verify", recordings];
        let output = scene.ozctl("admin", &words)?.output()?;
        let lines = said(&output);
        let line = lines.lines().find(|line| line.starts_with(session));
        let line = line.with_context(|| lines.clone())?;
        ensure!(line.contains(finding), "{line}");
        ensure!(finding == AS_RECORDED || output.status.code() == Some(1));
        Ok(())
    };
    with_the_trail("--recordings", AS_RECORDED)?;
    with_the_trail(&in_directory, AS_RECORDED)?;
    let listed = scene.ozctl("admin", &["sessions", "list"])?.output()?;
    let row = format!("alice   {pod}");
    ensure!(
        said(&listed).contains(&row) && said(&listed).contains("yes"),
        "{}",
        said(&listed)
    );
    let part = parts(&store)?.pop().context("no part is stored")?;
    let mut bytes = std::fs::read(&part)?;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&part, &bytes)?;
    for from in [&[][..], &from] {
        let output = verify(from)?;
        ensure!(output.status.code() == Some(1), "{}", said(&output));
        ensure!(said(&output).contains("changed"), "{}", said(&output));
    }
    with_the_trail("--recordings", "changed")?;
    std::fs::remove_file(&part)?;
    ensure!(said(&verify(&from)?).contains("part 0 is missing"));
    with_the_trail(&in_directory, "part 0 is missing")
}

#[tokio::test]
async fn recording_of_killed_gate_is_completed_by_next_gate() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let mut gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "interrupted").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let command = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
    let session = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(Session::open(scene.through_gate("alice", "mine", &command)).ok())
    })
    .await?;
    // The output that a user saw is on the disk soon after.
    let spool = kept.store().with_file_name("spool");
    eventually("the session in the spool", CONDITION_TIMEOUT, async || {
        Ok(contains(&spool, b"here")?.then_some(()))
    })
    .await?;
    gate.process.kill9();
    session.ended(CONDITION_TIMEOUT)?;
    let gate = Gate::start(cluster, &kept.options()).await?;
    let records = recorded(&gate, &scene, Action::SessionRecorded, 1).await?;
    assert_eq!(records[0].reason, "Interrupted");
    ensure!(
        records[0]
            .user
            .as_ref()
            .is_some_and(|user| user.user == "alice"),
        "{records:?}"
    );
    let store = kept.store();
    let from = store.to_str().context("a path")?;
    let transcript = ["sessions", "transcript", "mine", "--from", from];
    let text = eventually(
        "the recording to be stored",
        CONDITION_TIMEOUT,
        async || {
            let output = scene.ozctl("admin", &transcript)?.output()?;
            Ok(output.status.success().then_some(output.stdout))
        },
    )
    .await?;
    assert_eq!(String::from_utf8(text)?, "here\n");
    let verified = scene
        .ozctl("admin", &["sessions", "verify", "--from", from])?
        .output()?;
    ensure!(verified.status.success(), "{}", said(&verified));
    Ok(())
}

/// Checks whether a file below a directory contains these bytes.
pub(crate) fn contains(directory: &Path, bytes: &[u8]) -> Result<bool> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(false);
    };
    for entry in entries {
        let path = entry?.path();
        let found = match path.is_dir() {
            true => contains(&path, bytes)?,
            false => std::fs::read(&path)?
                .windows(bytes.len())
                .any(|part| part == bytes),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[tokio::test]
async fn without_a_place_to_keep_it_there_is_no_session_where_one_must_be_recorded() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let gate = Gate::start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "nowhere").await?;
    scene.template(&recording_template(REQUIRED)).await?;
    let offered = RecordingConfig {
        mode: RecordingMode::BestEffort,
        ..REQUIRED
    };
    let mut template = recording_template(offered);
    template.metadata.name = Some("offered".to_owned());
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let other = alice
        .granted(&exec_request("other", "offered", "5m"))
        .await?
        .pod();
    let get_in = |request: &str, pod: &str| {
        scene
            .through_gate("alice", request, &["exec", pod, "--", "true"])
            .output()
    };
    eventually(
        "alice to get in where it is offered",
        CONDITION_TIMEOUT,
        async || Ok(get_in("other", &other)?.status.success().then_some(())),
    )
    .await?;
    recorded(&gate, &scene, Action::SessionUnrecorded, 1).await?;
    let refused = get_in("mine", &pod)?;
    ensure!(!refused.status.success());
    ensure!(
        said(&refused).contains("requires a recording of each session"),
        "{}",
        said(&refused)
    );
    Ok(())
}

#[tokio::test]
async fn a_template_that_records_without_a_gate_is_refused() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "ungated").await?;
    let mut template = recording_template(REQUIRED);
    template.spec.access_config.sessions = oz_api::Sessions::Required;
    let refused = scene.template(&template).await;
    let refused = refused.err().context("it was taken")?.to_string();
    ensure!(
        refused.contains("spec.accessConfig.recording.mode"),
        "{refused}"
    );
    Ok(())
}
