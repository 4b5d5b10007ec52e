//! The waiting time of a user on call: `ozctl exec deploy/web -- true`, from start to end, as a separate
//! process each time; and the shares of oz and of Kubernetes in it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{Scene, WORKLOAD};
use oz_testkit::cargo_binary;
use tokio::process::Command;

use super::report::{Budget, Report};
use super::stats::Values;
use crate::real_node::RealNode;

/// The budget, in milliseconds.
const BUDGET: f64 = 500.0;

pub(super) async fn measure(runs: u32, count: usize, report: &mut Report) -> Result<()> {
    let stage = RealNode::start("bench").await?;
    let scene = &stage.scene;
    let ozctl = cargo_binary("ozctl")?;
    let target = format!("deploy/{WORKLOAD}");
    let asked = |words: &[&str]| {
        let mut command = Command::new(&ozctl);
        command
            .args(["-n", scene.name()])
            .args(words)
            .env("KUBECONFIG", scene.cluster.kubeconfig("alice"))
            .env("USER", "alice");
        command
    };
    time(asked(&["exec", &target, "--", "true"])).await?;
    for _ in 0..runs {
        let mut whole = Vec::new();
        let mut again = Vec::new();
        time(asked(&["exec", &target, "--keep", "--", "true"])).await?;
        let kept = kept(scene).await?;
        for _ in 0..count {
            whole.push(time(asked(&["exec", &target, "--", "true"])).await?);
            let words = ["exec", &target, "--request", &kept, "--", "true"];
            again.push(time(asked(&words)).await?);
        }
        time(asked(&["revoke", &kept])).await?;
        let (whole, again) = (milliseconds(whole), milliseconds(again));
        report.add(
            "ozctl exec -- true, p50",
            "ms",
            Budget::AtMost(BUDGET),
            whole.median(),
        );
        let worst = whole.percentile(95);
        report.add(
            "ozctl exec -- true, p95",
            "ms",
            Budget::AtMost(BUDGET),
            worst,
        );
        let name = "of it with access that is there already, p50";
        report.add(name, "ms", Budget::None, again.median());
    }
    Ok(())
}

fn milliseconds(times: Vec<Duration>) -> Values {
    times.into_iter().collect()
}

async fn time(mut command: Command) -> Result<Duration> {
    let began = Instant::now();
    let output = command.output().await.context("failed to run ozctl")?;
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ozctl ended with {}: {said}",
        output.status
    );
    Ok(took)
}

async fn kept(scene: &Scene) -> Result<String> {
    let requests = scene.api::<oz_api::ExecAccessRequest>();
    let list = requests.list(&kube::api::ListParams::default()).await?;
    let newest = list
        .items
        .into_iter()
        .find_map(|request| request.metadata.name);
    newest.context("no access was kept")
}
