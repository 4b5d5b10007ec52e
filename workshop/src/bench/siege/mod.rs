//! Honest grants during every known flood, all at once: the effect on the requesters, and on the guarantees
//! of oz. On a real node, so that the hanging shells are real shells. Each run has a separate cluster, since
//! the objects of the floods remain.

mod floods;
mod honest;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use kube::Api;
use kube::api::ListParams;
use oz_e2e::{Options as Flags, System};
use oz_testkit::{Cluster, MemoryLimit, Process};
use oz_trail::AuditEvent;

use super::process::{machine_time, peak, processor_time};
use super::report::{Budget, Report};
use crate::real_node;
use floods::Floods;
use honest::{Honest, Waits};

/// The memory limit of operator and webhook in the chart's values, in MiB.
const MEMORY_LIMIT: u32 = 256;
/// The maximum ratio of a requester's waiting time to that without floods.
const WAIT_RATIO: f64 = 3.0;
/// The maximum number of AuditEvents from the floods and the grants together.
const RECORDS: f64 = 2000.0;

/// The duration and the report of a siege.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: super::Options,
    /// The duration of the floods in minutes: 5, or 1 with --quick. A phase of half that duration without floods
    /// precedes.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=60))]
    minutes: Option<u32>,
}

pub(super) async fn measure(options: &Options, runs: u32, report: &mut Report) -> Result<()> {
    let shipped = if options.common.quick { 1 } else { 5 };
    let siege = Duration::from_secs(60) * options.minutes.unwrap_or(shipped);
    for _ in 0..runs {
        run(siege, report).await?;
    }
    Ok(())
}

async fn run(siege: Duration, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    // Dropped after the processes: a control group with a process cannot be removed.
    let mut limits = Vec::new();
    let webhook = Flags::default().limited();
    let mut system = System::start_as(cluster, &webhook, &Flags::default().cutting()).await?;
    for process in [&system.operator.process, &system.webhook.process] {
        limits.push(limited(process)?);
    }
    let calm = Honest::set(cluster, "calm").await?;
    let honest = Honest::set(cluster, "honest").await?;

    let before = Spent::now(&system)?;
    let calm = calm.ask(siege / 2).await?;
    calm.tell("without floods", report)?;
    before.tell("without floods", &system, report)?;

    let records = records(cluster).await?;
    let before = Spent::now(&system)?;
    let floods = Floods::start(cluster, &system).await?;
    let beside = honest.ask(siege).await?;
    let counts = floods.stop().await;
    beside.tell("beside them", report)?;
    compare(&beside, &calm, report);
    before.tell("beside them", &system, report)?;
    for flood in counts {
        let what = format!("flood: {}", flood.what);
        report.add(&what, "/s", Budget::None, flood.each_second);
        report.add(&format!("{what}, let in"), "%", Budget::None, flood.let_in);
    }
    stood(&mut system, report)?;
    let written = self::records(cluster).await? - records;
    report.add("AuditEvents", "", Budget::AtMost(RECORDS), written);
    Ok(())
}

fn limited(process: &Process) -> Result<MemoryLimit> {
    let limit = MemoryLimit::set(process, u64::from(MEMORY_LIMIT) << 20);
    limit.context("failed to limit the memory of a process: this takes control groups")
}

/// Reports the slowdown of oz, and of the API server alone on the same machine.
fn compare(beside: &Waits, calm: &Waits, report: &mut Report) {
    let mut row = |what: &str, budget, ratio: f64| {
        report.add(
            &format!("{what}, in times of it without"),
            "×",
            budget,
            ratio,
        );
    };
    let ratio = |of: fn(&Waits) -> f64| of(beside) / of(calm);
    let ready = ratio(|it| it.ready.percentile(99));
    let maps = ratio(|it| it.maps.percentile(99));
    row(
        "from asking to Ready, p99",
        Budget::AtMost(WAIT_RATIO),
        ready,
    );
    row("  ConfigMap create, p99", Budget::None, maps);
    // Where the API server itself is saturated, no client can be faster.
    let what = "slowdown of the wait for Ready, over that of the ConfigMap";
    report.add(what, "×", Budget::AtMost(1.0), ready / maps);
}

/// Reports whether the original processes still run, and their peak memory.
fn stood(system: &mut System, report: &mut Report) -> Result<()> {
    let mut ended = 0.0;
    for (name, process) in [
        ("operator", &mut system.operator.process),
        ("webhook", &mut system.webhook.process),
    ] {
        if process.exited()?.is_some() {
            ended += 1.0;
            continue;
        }
        let most = Budget::AtMost(f64::from(MEMORY_LIMIT));
        report.add(
            &format!("most memory of the {name}"),
            "MiB",
            most,
            peak(process.pid())?,
        );
    }
    report.add("processes that ended", "", Budget::AtMost(0.0), ended);
    Ok(())
}

/// The processor time so far, by user.
struct Spent {
    at: Instant,
    machine: Duration,
    operator: Duration,
    webhook: Duration,
    bench: Duration,
}

impl Spent {
    fn now(system: &System) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            machine: machine_time()?,
            operator: processor_time(system.operator.process.pid())?,
            webhook: processor_time(system.webhook.process.pid())?,
            bench: processor_time(std::process::id())?,
        })
    }

    /// Reports the average number of busy processors of the machine since then, and their use.
    fn tell(&self, when: &str, system: &System, report: &mut Report) -> Result<()> {
        let now = Self::now(system)?;
        let elapsed = (now.at - self.at).as_secs_f64();
        let part =
            |of: fn(&Self) -> Duration| of(&now).saturating_sub(of(self)).as_secs_f64() / elapsed;
        let [operator, webhook, bench] = [
            part(|it| it.operator),
            part(|it| it.webhook),
            part(|it| it.bench),
        ];
        let all = part(|it| it.machine);
        let mut row =
            |what: &str, value| report.add(&format!("{when}: {what}"), "", Budget::None, value);
        row("cores that were busy", all);
        row("  with the operator", operator);
        row("  with the webhook", webhook);
        row("  with this program, which floods", bench);
        row(
            "  with the control plane and the node",
            all - operator - webhook - bench,
        );
        Ok(())
    }
}

async fn records(cluster: &Cluster) -> Result<f64> {
    let events = Api::<AuditEvent>::all(cluster.client("admin").await?);
    let page = events
        .list_metadata(&ListParams::default())
        .await
        .context("failed to count the AuditEvents")?;
    Ok(f64::from(u32::try_from(page.items.len())?))
}
