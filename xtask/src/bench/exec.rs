//! What somebody on call waits for: `ozctl exec deploy/web -- true`, from nothing to done, as a
//! process of its own each time; and what of it is oz's and what Kubernetes'.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{Scene, System, TEMPLATE};
use oz_testkit::{Cluster, ClusterOptions, Node, cargo_binary};
use tokio::process::Command;

use super::report::{Budget, Report};
use super::stats::Values;

/// The promise, in milliseconds.
const BUDGET: f64 = 500.0;

pub(super) async fn measure(runs: u32, count: usize, report: &mut Report) -> Result<()> {
    ensure!(
        Node::Real.is_possible()?,
        "ozctl exec is measured on a real node, which takes root and Debian packages"
    );
    let options = ClusterOptions {
        node: Node::Real,
        ..ClusterOptions::default()
    };
    let owner = Cluster::start(options).await?;
    // The scene takes a cluster that is there for good, which costs a few bytes.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::attach(owner.state_dir())?));
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "bench").await?;
    let ozctl = cargo_binary("ozctl")?;
    let target = format!("template/{TEMPLATE}");
    let asked = |words: &[&str]| {
        let mut command = Command::new(&ozctl);
        command
            .args(["-n", scene.name()])
            .args(words)
            .env("KUBECONFIG", cluster.kubeconfig("alice"))
            .env("USER", "alice");
        command
    };
    time(asked(&["exec", &target, "--", "true"])).await?;
    for _ in 0..runs {
        let mut whole = Vec::new();
        let mut again = Vec::new();
        time(asked(&["exec", &target, "--keep", "--", "true"])).await?;
        let kept = kept(&scene).await?;
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
    drop(owner);
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
    let requests = scene.api::<oz_core::api::ExecAccessRequest>();
    let list = requests.list(&kube::api::ListParams::default()).await?;
    let newest = list
        .items
        .into_iter()
        .find_map(|request| request.metadata.name);
    newest.context("no access was kept")
}
