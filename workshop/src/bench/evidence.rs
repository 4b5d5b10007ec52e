//! The waiting time of an auditor for the evidence of many requests, and for its verification.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use oz_e2e::{Auditor, Options, System};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};
use tokio::process::Command;

use super::report::{Budget, Report};
use super::scene::{self, BenchScene};

/// The budget for a thousand requests, in seconds.
const BUDGET: f64 = 10.0;
/// The exit code of `ozctl audit evidence` when it reports missing parts: this cluster has no Deployment of
/// an operator.
const WITH_GAPS: i32 = 3;

pub(super) async fn measure(runs: u32, requests: usize, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    let _system = System::start_with(cluster, &Options::default()).await?;
    let from = Timestamp::now().to_string();
    let mut bench = BenchScene::set(cluster, "evidence").await?;
    bench.ask_many("evidence", requests).await?;
    signed(&Auditor::pinning(&bench.scene.admin).await?).await?;
    let to = Timestamp::now().to_string();
    let files = tempfile::tempdir()?;
    for run in 0..runs {
        let file = files.path().join(format!("evidence-{run}.tar"));
        let file = file.to_str().context("the path is no text")?;
        let kubeconfig = cluster.kubeconfig("admin");
        let made = ozctl(&["evidence", "-o", file, "--from", &from, "--to", &to]);
        let made = timed(made?.env("KUBECONFIG", kubeconfig), &[0, WITH_GAPS]).await?;
        let checked = ozctl(&["evidence", "--check", file]);
        let checked = timed(checked?.env("KUBECONFIG", "/nowhere"), &[0]).await?;
        for (what, took) in [("made", made), ("checked", checked)] {
            report.add(
                &format!("evidence of {requests} requests, {what}"),
                "s",
                Budget::AtMost(BUDGET),
                took.as_secs_f64(),
            );
        }
    }
    Ok(())
}

/// Waits until all audit records are signed.
async fn signed(auditor: &Auditor) -> Result<()> {
    let what = "the trail to be signed to its end";
    eventually(what, CONDITION_TIMEOUT, async || {
        let report = auditor.report().await?;
        let done = report
            .chains
            .iter()
            .all(|chain| chain.complete_through == chain.last);
        Ok(done.then_some(()))
    })
    .await
}

fn ozctl(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command.arg("audit").args(words).env("NO_COLOR", "1");
    Ok(command)
}

/// Returns the duration of a command that must end with one of these codes.
async fn timed(command: &mut Command, codes: &[i32]) -> Result<Duration> {
    let began = Instant::now();
    let output = command.output().await.context("failed to run ozctl")?;
    let took = began.elapsed();
    ensure!(
        output
            .status
            .code()
            .is_some_and(|code| codes.contains(&code)),
        "ozctl ended with {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(took)
}
