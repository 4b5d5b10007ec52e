//! An API server that is killed and comes back: what was open through it breaks, on record and recorded, and the same
//! gate lets people in again.

use anyhow::{Result, ensure};
use oz_core::api::{RecordingConfig, RecordingMode};
use oz_core::audit::Action;
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, Session, System, exec_request, recording_template,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::{TURN, cluster};

#[tokio::test]
async fn a_gate_goes_on_after_the_api_server_was_killed_and_what_broke_is_on_record() -> Result<()>
{
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
    let granted = alice.granted(&exec_request("mine", GATED, "1h")).await?;
    let pod = granted.pod();
    let open = async || {
        let words = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
        eventually("alice to get in", CONDITION_TIMEOUT, async || {
            Session::open(scene.through_gate("alice", "mine", &words)).map(Some)
        })
        .await
    };
    let before = open().await?;
    cluster.restart_api_server().await?;
    before.ended(CONDITION_TIMEOUT)?;
    let after = open().await?;
    ensure!(after.is_open() && gate.process.exited()?.is_none());
    for action in [Action::SessionEnded, Action::SessionRecorded] {
        let what = format!("{action} of what broke");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let records = records_in(&gate.process)?;
            let of_it = records
                .iter()
                .filter(|one| one.action == action && one.request.namespace == scene.name());
            Ok((of_it.count() >= 1).then_some(()))
        })
        .await?;
    }
    Ok(())
}
