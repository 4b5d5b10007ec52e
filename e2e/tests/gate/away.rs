//! Expiry of open sessions by the gate alone, at their second: also while the kubelet does not respond, or with a gate
//! that has a wrong clock.

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use oz_e2e::{
    GATED, Gate, Options, Scene, Session, System, clocks_can_be_shifted, exec_request,
    gate_template, records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Tool, eventually};
use oz_trail::{Action, Decision};
use rustix::process::{Pid, Signal, kill_process};

use crate::{TURN, Whole, cluster};

/// The limit of lateness of an end: a session that the gate does not end continues for much longer.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// The limit of earliness of an end: the API server states its time in whole seconds.
const EARLY: SignedDuration = SignedDuration::from_secs(1);

/// A program that is stopped for the lifetime of this value.
struct Frozen(Pid);

impl Frozen {
    fn freeze(cluster: &Cluster, tool: Tool) -> Result<Self> {
        let name = tool.name();
        let pid = cluster
            .components()
            .get(name)
            .with_context(|| name.to_owned())?;
        let pid = Pid::from_raw(i32::try_from(*pid)?).with_context(|| name.to_owned())?;
        kill_process(pid, Signal::STOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Checks that a session ends when its grant does, and that its end is recorded, regardless of `disturb`, which runs
/// once the session is open.
async fn ends_in_time<D>(
    gate: &Gate,
    scene: &Scene,
    disturb: impl FnOnce() -> Result<D>,
) -> Result<()> {
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("short", GATED, "15s")).await?;
    let until = granted.status().expires_at.context("no end")?;
    let pod = granted.pod();
    let talks = "echo here; while true; do echo still; sleep 1; done";
    let words = ["exec", "-i", &pod, "--", "sh", "-c", talks];
    let session = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Session::open(scene.through_gate("alice", "short", &words)).map(Some)
    })
    .await?;
    let disturbed = disturb()?;
    let ended = session.ended(CONDITION_TIMEOUT)?;
    drop(disturbed);
    let late = ended.duration_since(until);
    ensure!(
        late >= -EARLY && late < LATE,
        "it ended {late:#} after its time"
    );
    let cut = eventually("its end on record", CONDITION_TIMEOUT, async || {
        let mut records = records_in(&gate.process)?;
        records
            .retain(|one| one.decision == Decision::End && one.request.namespace == scene.name());
        Ok((!records.is_empty()).then_some(records))
    })
    .await?;
    let [cut] = &cut[..] else {
        anyhow::bail!("one end, told so often: {cut:?}");
    };
    ensure!(
        cut.action == Action::SessionTerminated
            && cut.time >= until - EARLY
            && cut.time < until + LATE,
        "{cut:?}"
    );
    Ok(())
}

#[tokio::test]
async fn open_session_ends_in_time_while_kubelet_hangs() -> Result<()> {
    let whole = Whole::start("frozen").await?;
    let freeze = || Frozen::freeze(whole.scene.cluster, Tool::Kwok);
    ends_in_time(&whole.gate, &whole.scene, freeze).await
}

#[tokio::test]
async fn gate_with_wrong_clock_ends_sessions_by_api_server_time() -> Result<()> {
    if !clocks_can_be_shifted()? {
        return Ok(());
    }
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    for (prefix, offset) in [("gate-behind", "-1h"), ("gate-ahead", "+1h")] {
        let gate = Gate::start(cluster, &Options::default().clock(offset)).await?;
        let scene = Scene::set(cluster, prefix).await?;
        scene.template(&gate_template()).await?;
        let ends = ends_in_time(&gate, &scene, || Ok(()));
        ends.await.with_context(|| format!("a clock at {offset}"))?;
    }
    Ok(())
}
