//! Figures that one measurement shows: the start, an idle minute, memory. On a separate cluster, without
//! earlier activity.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oz_e2e::{Operator, Options, Webhook, install};
use oz_testkit::{Cluster, eventually};

use super::Size;
use super::grants::operator;
use super::process::{processor_time, resident};
use super::report::{Budget, Report};
use super::scene::{self, BenchScene, CHANGE_TIMEOUT};
use super::stats::number;

/// The time after its start for which a process does not count as idle yet.
const SETTLING: Duration = Duration::from_secs(2);

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    let mut running = None;
    for _ in 0..size.starts {
        drop(running.take());
        let (operator, took) = start(cluster).await?;
        report.add(
            "start to ready",
            "ms",
            Budget::AtMost(300.0),
            took.as_secs_f64() * 1000.0,
        );
        running = Some(operator);
    }
    let operator = running.context("the operator was never started")?;
    let pid = operator.process.pid();
    tokio::time::sleep(SETTLING).await;
    report.add(
        "memory without a request",
        "MiB",
        Budget::AtMost(15.0),
        resident(pid)?,
    );

    let mut bench = BenchScene::set(cluster, "idle").await?;
    bench.ask_many("active", size.idle_grants).await?;
    idle(cluster, pid, size, report).await?;

    bench
        .ask_many("many", size.many.saturating_sub(size.idle_grants))
        .await?;
    let what = format!("memory with {} requests", size.many);
    report.add(&what, "MiB", Budget::AtMost(30.0), resident(pid)?);
    Ok(())
}

/// Starts an operator; returns the time from its process to its readiness.
pub(super) async fn start(cluster: &Cluster) -> Result<(Operator, Duration)> {
    let operator = Operator::spawn(cluster, &Options::default().flag("--leader-elect"))?;
    let began = Instant::now();
    loop {
        let ready = operator.readiness().await;
        if ready.is_ok_and(|(code, _)| code == 200) {
            return Ok((operator, began.elapsed()));
        }
        anyhow::ensure!(
            began.elapsed() < CHANGE_TIMEOUT,
            "the operator does not get ready"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The maximum delay of a checkpoint of the audit trail after its records, with a reserve.
const REST: Duration = Duration::from_secs(8);

/// Measures the activity of the operator without requests.
async fn idle(cluster: &Cluster, pid: u32, size: Size, report: &mut Report) -> Result<()> {
    let calls = |mark| -> Result<_> { Ok(cluster.audit().since(mark)?.by_user(&operator())) };
    let disturbed = |mark| -> Result<_> {
        Ok(calls(mark)?.filter(|entry| entry.resource != "leases" && !entry.dry_run))
    };
    // The operator writes the last events of the grants late.
    eventually("the operator to come to rest", CHANGE_TIMEOUT, async || {
        let mark = cluster.audit().mark()?;
        tokio::time::sleep(REST).await;
        Ok(disturbed(mark)?.is_empty().then_some(()))
    })
    .await?;
    let (mark, before) = (cluster.audit().mark()?, processor_time(pid)?);
    tokio::time::sleep(size.idle).await;
    let spent = processor_time(pid)?.saturating_sub(before);
    let all = calls(mark)?;
    // A watch is logged when it ends, which it does after some minutes.
    let rest = all
        .clone()
        .filter(|entry| entry.resource != "leases" && !entry.dry_run && entry.verb != "watch");
    let renewals = all.clone().filter(|entry| entry.resource == "leases");
    let trials = all.filter(|entry| entry.dry_run);
    let what = format!(
        "API calls in {} s of rest, {} grants",
        size.idle.as_secs(),
        size.idle_grants
    );
    report.add(&what, "", Budget::AtMost(0.0), number(rest.len())?);
    report.add(
        "  lease renewals",
        "",
        Budget::None,
        number(renewals.len())?,
    );
    report.add("  dry-runs", "", Budget::None, number(trials.len())?);
    report.add(
        "  operator CPU",
        "ms",
        Budget::None,
        spent.as_secs_f64() * 1000.0,
    );
    Ok(())
}
