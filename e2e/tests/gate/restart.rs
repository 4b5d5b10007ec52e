//! An API server that is killed and restarts: its open sessions break, with audit records and recordings, and the same
//! gate grants access again.

use anyhow::{Result, ensure};
use oz_api::{RecordingConfig, RecordingMode};
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, Session, System, exec_request, recording_template,
};
use oz_gating::live::State;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use crate::live::noted;
use crate::moderation::{self, MODERATED, Program, stands};
use crate::{TURN, cluster};

#[tokio::test]
async fn gate_continues_after_api_server_kill_and_records_broken_session() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let kept = RecordingStore::new()?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let mut gate = Gate::start(cluster, &kept.options()).await?;
    let scene = Scene::set(cluster, "restart").await?;
    let required = RecordingConfig {
        mode: RecordingMode::Required,
        ..RecordingConfig::default()
    };
    scene.template(&recording_template(required)).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("plain", GATED, "1h")).await?;
    let pod = granted.pod();
    let open = async || {
        let words = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
        eventually("alice to get in", CONDITION_TIMEOUT, async || {
            Session::open(scene.through_gate("alice", "plain", &words)).map(Some)
        })
        .await
    };
    let before = open().await?;
    // A session without a moderator, so that it waits.
    scene
        .template(&moderation::template(&["moderators"]))
        .await?;
    scene.may_moderate_sessions("moderators").await?;
    let moderated = exec_request("mine", MODERATED, "1h");
    let pod_of_it = alice.granted(&moderated).await?.pod();
    let words = ["exec", &pod_of_it, "--", "true"];
    let _waits = Program::start(scene.through_gate("alice", "mine", &words))?;
    let moderator = format!("{}-moderators", scene.name());
    stands(&scene, &moderator, State::Waiting, 0).await?;
    cluster.restart_api_server().await?;
    before.ended(CONDITION_TIMEOUT)?;
    let reasons = ["Closed", "NotOpened"];
    noted(&gate, &scene, Action::SessionEnded, &reasons).await?;
    let after = open().await?;
    ensure!(after.is_open() && gate.process.exited()?.is_none());
    noted(&gate, &scene, Action::SessionRecorded, &["Recorded"]).await?;
    Ok(())
}
