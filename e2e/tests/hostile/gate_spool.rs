//! The spool on which the gate keeps the recordings of all users until they are stored.

use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use oz_api::{RecordingConfig, RecordingMode};
use oz_e2e::{exec_request, recording_template, records_in, refusal, run_for_a_while};
use oz_testkit::eventually;
use oz_trail::Action;

use crate::gating::{Gated, REQUIRED, SPOOL, gets_in};

const MINUTES: Duration = Duration::from_secs(240);
/// A template with recordings that are offered, not required.
const OFFERED: &str = "offered";

/// Filling the gate's spool with incompressible output while recordings cannot be stored, to end the sessions of
/// other users or to stop the recording of further sessions: above an eighth of the spool, the gate slows down the
/// sessions of this user and denies this user new ones under every template. Other users' sessions continue. The gate
/// stores every recording when the store is available again.
#[tokio::test]
async fn spool_that_one_user_fills_slows_down_that_user_alone() -> Result<()> {
    let gated = Gated::recorded_alone("filling").await?;
    let mut offered = recording_template(RecordingConfig {
        mode: RecordingMode::BestEffort,
        ..REQUIRED
    });
    offered.metadata.name = Some(OFFERED.to_owned());
    gated.template(&offered).await?;
    let alice = gated.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("other", OFFERED, "10m"))
        .await?;
    let (bobs, other) = (gated.of_bob("bobs").await?, asked.pod());
    gets_in(&gated, "alice", "other", &other).await?;
    let unavailable = gated.recordings.unavailable()?;
    let mut printing = filled(&gated, &other, &bobs).await?;
    drop(unavailable);
    let ended = eventually("all of it to be printed", MINUTES, async || {
        Ok(printing.try_wait()?)
    });
    let ended = ended.await?;
    ensure!(ended.success(), "{ended}");
    gets_in(&gated, "alice", "mine", &gated.pod).await?;
    eventually("all of it to be stored", MINUTES, async || {
        let verified = gated.ozctl("admin", &["sessions", "verify"])?.output()?;
        let waiting = metric(&gated, "oz_gate_recording_parts_waiting").await?;
        Ok((verified.status.success() && waiting == 0.0).then_some(()))
    })
    .await?;
    let mut records = records_in(&gated.gate.process)?;
    records.retain(|record| record.request.namespace == gated.name());
    let of = |action| records.iter().filter(move |one| one.action == action);
    ensure!(of(Action::SessionUnrecorded).count() == 0, "{records:?}");
    ensure!(of(Action::SessionTerminated).count() == 0, "{records:?}");
    Ok(())
}

/// Fills alice's share of the spool with a session that continues to print, and checks the effect for her and for
/// bob.
async fn filled(gated: &Gated, other: &str, bobs: &str) -> Result<Child> {
    let much = "head -c 6291456 /dev/urandom | base64";
    let command = ["exec", &gated.pod, "--", "sh", "-c", much];
    let mut command = gated.through_gate("alice", "mine", &command);
    let printing = command.stdout(Stdio::null()).spawn()?;
    eventually("alice to be slowed down", MINUTES, async || {
        let full = metric(gated, "oz_gate_recording_shares_full").await?;
        let slowed = metric(gated, "oz_gate_sessions_throttled").await?;
        Ok((full == 1.0 && slowed >= 1.0).then_some(()))
    })
    .await?;
    for (request, pod) in [("mine", gated.pod.as_str()), ("other", other)] {
        let command = ["exec", pod, "--", "true"];
        // Compression frees space for a moment. A session that opens then lasts until the store is available again.
        let why = eventually("alice to be kept out", MINUTES, async || {
            let output = run_for_a_while(&gated.through_gate("alice", request, &command))?;
            Ok(output.and_then(|output| refusal(&output)))
        })
        .await?;
        ensure!(why.contains("bytes of one user"), "{why}");
    }
    let mut session = gated.session("bob", "bobs", bobs).await?;
    session.hears(b"here\n").await?;
    gets_in(gated, "bob", "bobs", bobs).await?;
    let used = metric(gated, "oz_gate_recording_spool_bytes").await?;
    ensure!(used < f64::from(SPOOL / 4), "{used} bytes are taken");
    Ok(printing)
}

/// Returns the value of a metric from the metrics page.
async fn metric(gated: &Gated, name: &str) -> Result<f64> {
    let page = gated.gate.metrics().await?;
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| rest.strip_prefix(' '));
    Ok(value
        .with_context(|| format!("no {name}"))?
        .trim()
        .parse()?)
}
