//! Honest grants beside every flood that is known, all at once: what somebody who asks notices of
//! them, and whether anything that oz promised gives way. On a real node, so that the shells that
//! hang are shells.

mod floods;

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::ListParams;
use oz_core::api::AuditEvent;
use oz_e2e::{Options, Outcome, Rhythm, Scene, System, Traffic};
use oz_testkit::Cluster;

use super::process::{peak, processor_time};
use super::report::{Budget, Report};
use super::stats::Values;
use crate::real_node;
use floods::Floods;

/// The honest ones: 200 grants in five minutes, each for 6 to 17 seconds.
const RHYTHM: Rhythm = Rhythm {
    pace: Duration::from_millis(1500),
    shortest: 6,
};
/// The memory limit of operator and webhook in the chart's values, in MiB.
const MEMORY_LIMIT: f64 = 256.0;
/// How much longer than without floods somebody who asks may wait.
const WAIT_RATIO: f64 = 3.0;
/// How late an end may be, in milliseconds.
const END: f64 = 1000.0;
/// AuditEvents that may come of the floods and the grants together.
const RECORDS: f64 = 2000.0;

/// How many honest grants there are without floods, and beside them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    before: usize,
    during: usize,
}

impl Size {
    pub(super) const FULL: Self = Self {
        before: 100,
        during: 200,
    };
    pub(super) const QUICK: Self = Self {
        before: 20,
        during: 40,
    };
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    let mut system = System::start_with(cluster, &Options::default().cutting()).await?;

    let calm = grants(&Scene::set(cluster, "calm").await?, size.before).await?;
    let calm = tell("without floods", &calm, report)?;

    let scene = Scene::set(cluster, "honest").await?;
    let records = records(cluster).await?;
    let spent = processor_time(system.operator.process.pid())?;
    let floods = Floods::start(cluster, &system).await?;
    let beside = grants(&scene, size.during).await?;
    let counts = floods.stop().await;
    let beside = tell("beside them", &beside, report)?;

    report.add(
        "  wait, p99, in p99s without floods",
        "×",
        Budget::AtMost(WAIT_RATIO),
        beside / calm,
    );
    for (flood, done) in counts {
        report.add(&format!("flood: {flood}"), "", Budget::None, done);
    }
    let spent = processor_time(system.operator.process.pid())?.saturating_sub(spent);
    report.add(
        "operator's CPU meanwhile",
        "s",
        Budget::None,
        spent.as_secs_f64(),
    );
    let mut restarts = 0.0;
    for (name, process) in [
        ("operator", &mut system.operator.process),
        ("webhook", &mut system.webhook.process),
    ] {
        if process.exited()?.is_some() {
            restarts += 1.0;
            continue;
        }
        let most = peak(process.pid())?;
        let what = format!("{name}: most memory");
        report.add(&what, "MiB", Budget::AtMost(MEMORY_LIMIT), most);
    }
    report.add("processes that ended", "", Budget::AtMost(0.0), restarts);
    let written = self::records(cluster).await? - records;
    report.add("AuditEvents", "", Budget::AtMost(RECORDS), written);
    Ok(())
}

/// So many grants that come and go.
async fn grants(scene: &Scene, count: usize) -> Result<Outcome> {
    let traffic = Traffic::start_with(scene, RHYTHM).await?;
    for _ in 0..count.div_ceil(10) {
        traffic.more(10).await?;
    }
    traffic.stop(scene).await
}

/// Tells how long people waited for access, and how late it ended; gives the wait's p99.
fn tell(when: &str, outcome: &Outcome, report: &mut Report) -> Result<f64> {
    let courses = outcome.courses.iter();
    let wait: Values = courses
        .clone()
        .map(|course| course.wait().as_millis_f64())
        .collect();
    let late: Values = courses
        .map(|course| course.late().as_millis_f64())
        .collect();
    let mut row = |what: &str, budget, value| {
        report.add(&format!("{when}: {what}"), "ms", budget, value);
    };
    row("from asking to access, p50", Budget::None, wait.median());
    row(
        "from asking to access, p99",
        Budget::None,
        wait.percentile(99),
    );
    row("end after its time, p50", Budget::None, late.median());
    row(
        "end after its time, p99",
        Budget::AtMost(END),
        late.percentile(99),
    );
    row("end after its time, max", Budget::None, late.max());
    let refused = f64::from(u32::try_from(outcome.refused.len() + outcome.unreachable)?);
    report.add(
        &format!("{when}: turned away"),
        "",
        Budget::AtMost(0.0),
        refused,
    );
    Ok(wait.percentile(99))
}

async fn records(cluster: &Cluster) -> Result<f64> {
    let events = Api::<AuditEvent>::all(cluster.client("admin").await?);
    let page = events
        .list_metadata(&ListParams::default())
        .await
        .context("failed to count the AuditEvents")?;
    Ok(f64::from(u32::try_from(page.items.len())?))
}
