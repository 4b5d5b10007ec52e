//! `cargo xtask bench grants`, `… pods` and `… bindings`: the cost and the duration of a grant, or of a
//! transient binding, next to its budget; `audit`: the cost of its audit record; `approvals`: the time from
//! the approvals of other users until access; `evidence`: the waiting time of an auditor; `sessions`: the
//! delay of their end. Everything is measured from outside, on release builds: by watches, by the API
//! server's audit log and by the kernel's figures about the processes.

mod approvals;
mod audit;
mod bindings;
mod composites;
mod ends;
mod evidence;
mod exec;
mod gate;
mod grants;
mod ha;
mod harness_polls;
mod harness_proxy;
mod live_runs;
mod lock;
mod peer;
mod plan;
mod pods;
mod process;
mod report;
mod runs;
mod scale;
mod scene;
mod sessions;
mod siege;
mod single;
mod soak;
mod starts;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use xtask::programs;
use xtask::screen::Screen;

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Exec access: latency, throughput, API calls, lateness of the expiry, memory.
    Grants(GrantsOptions),
    /// Dedicated pods: latency, API calls, effect of one stuck pod on others, lateness of the expiry.
    Pods(Options),
    /// Audit trail: cost of a record, and the latency that it adds to a grant.
    Audit(Options),
    /// Approvals: time from the last approval to access, many decisions at once, cost of waiting requests, and
    /// emergencies.
    Approvals(Options),
    /// Cluster size: memory, starts and grants with increasing numbers of pods and grants, overdue grants at a start.
    Scale(Options),
    /// Evidence of a thousand requests: time to collect and to check it.
    Evidence(Options),
    /// Transient bindings: lateness of begin and end, API writes, cost of waiting bindings.
    Bindings(Options),
    /// Composites: a policy in process and a policy in OPA, thousands of parents, expiry next to functions that do not
    /// respond.
    Composites(CompositesOptions),
    /// Two replicas of every server: lateness of access and expiry while one replica is killed or replaced, the
    /// authority changes or the API server restarts.
    Ha(Options),
    /// `ozctl exec` on a real node, from request to exit (root).
    Exec(Options),
    /// Connect hook: cost with 10,000 grants and 50,000 pods, in process.
    Connect(Options),
    /// Lateness of the expiry next to hundreds of grants with sessions that cannot be ended, since their node does not
    /// respond.
    Ends(Options),
    /// Termination of open sessions on a real node: its lateness, regardless of the users' processes (root).
    Sessions(Options),
    /// Gate: latency that it adds to a session on a real node: first byte, a key, printed output; 200 at once (root).
    Gate(Options),
    /// Locks: time to end hundreds of grants with open sessions on a real node (root).
    Lock(Options),
    /// Harness runs compared with plain Jobs: many at once, behind an unschedulable run, lateness of the end, memory.
    Runs(Options),
    /// Start of the agent of a harness run on a real node, compared with a plain Job (root).
    Starts(Options),
    /// Brokers with simulated proxies of harness runs: memory with many held requests; delay until every proxy has learned
    /// of a replaced Secret, a narrowed and a deleted policy.
    HarnessPolls(Options),
    /// Proxy of a harness run on a real node, compared with TLS alone; its memory; delay until connections of a deleted
    /// policy are closed (root).
    HarnessProxy(Options),
    /// Soak test: grants are created and end for half an hour while every server is restarted in turn; reports growth
    /// and leftovers.
    Soak(Options),
    /// Any operator of this API that is installed on a cluster of `cargo xtask cluster up`: latency of its grants,
    /// lateness of their end, and cost.
    Peer(peer::Options),
    /// Grants of honest users during every known flood, all at once, for five minutes (root).
    Siege(siege::Options),
}

/// The options for grants, of one build or of two.
#[derive(Args)]
pub(crate) struct GrantsOptions {
    #[command(flatten)]
    common: Options,
    /// Directory with oz-operator and oz-webhook of another build: runs of both take turns, and the table shows the
    /// medians of both.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "json")]
    against: Option<PathBuf>,
}

/// The options for composites, of one version or of two.
#[derive(Args)]
pub(crate) struct CompositesOptions {
    #[command(flatten)]
    common: Options,
    /// Directory with the sources of another version, as `git worktree add` creates it: measures a policy in both versions
    /// and in OPA, and nothing else.
    #[arg(long, value_name = "DIRECTORY")]
    against: Option<PathBuf>,
}

/// The extent of a benchmark, and its output.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of measurements of varying results.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Fewer grants and one run: checks that the benchmark works, not the speed.
    #[arg(long)]
    quick: bool,
    /// Write JSON and no table.
    #[arg(long)]
    json: bool,
    /// Measure this build even if it is not a release build: for a quick check, since everything is slower.
    #[arg(long)]
    unoptimised: bool,
}

/// The size of the benchmarks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) runs: u32,
    pub(crate) one_by_one: usize,
    pub(crate) at_once: usize,
    pub(crate) endings: usize,
    /// Grants that end together, and of which the sessions cannot be ended.
    pub(crate) hanging: usize,
    pub(crate) starts: usize,
    /// Active grants during the idle phase, and its duration.
    pub(crate) idle_grants: usize,
    pub(crate) idle: Duration,
    pub(crate) many: usize,
    /// AuditEvents that are old enough to be deleted.
    pub(crate) events: usize,
    /// Pods that are requested together with a stuck one.
    pub(crate) pods: usize,
    /// Pods that end at one instant.
    pub(crate) pod_endings: usize,
    /// Sessions that are open at once, and the number of revoked ones.
    pub(crate) sessions: usize,
    pub(crate) revoked: usize,
}

impl Options {
    /// Returns the size of a bench that has a separate one; a full one has runs.
    fn sized<T>(&self, quick: fn() -> T, full: fn(u32) -> T) -> T {
        match self.quick {
            true => quick(),
            false => full(self.runs),
        }
    }

    const fn size(&self) -> Size {
        let full = Size {
            runs: self.runs,
            one_by_one: 50,
            at_once: 200,
            endings: 50,
            hanging: 600,
            starts: 5,
            idle_grants: 100,
            idle: Duration::from_secs(60),
            many: 2000,
            events: 100_000,
            pods: 50,
            pod_endings: 100,
            sessions: 50,
            revoked: 20,
        };
        if !self.quick {
            return full;
        }
        Size {
            runs: 1,
            one_by_one: 20,
            at_once: 60,
            endings: 20,
            hanging: 100,
            starts: 2,
            idle_grants: 20,
            idle: Duration::from_secs(15),
            many: 300,
            events: 5_000,
            pods: 20,
            pod_endings: 30,
            sessions: 12,
            revoked: 4,
        }
    }
}

pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    let (Bench::Grants(GrantsOptions {
        common: options, ..
    })
    | Bench::Pods(options)
    | Bench::Audit(options)
    | Bench::Approvals(options)
    | Bench::Evidence(options)
    | Bench::Scale(options)
    | Bench::Bindings(options)
    | Bench::Composites(CompositesOptions {
        common: options, ..
    })
    | Bench::Ha(options)
    | Bench::Exec(options)
    | Bench::Connect(options)
    | Bench::Ends(options)
    | Bench::Sessions(options)
    | Bench::Gate(options)
    | Bench::Lock(options)
    | Bench::Runs(options)
    | Bench::Starts(options)
    | Bench::HarnessPolls(options)
    | Bench::HarnessProxy(options)
    | Bench::Soak(options)
    | Bench::Peer(peer::Options {
        common: options, ..
    })
    | Bench::Siege(siege::Options {
        common: options, ..
    })) = bench;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if let Bench::Connect(_) = bench {
            return connect(options.unoptimised).await;
        }
        if cfg!(debug_assertions) && !options.unoptimised {
            return in_release().await;
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = measure(bench, options) => outcome.map(|()| ExitCode::SUCCESS),
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

/// Runs the tests of the hooks, which are parts of a program and cannot be called by another one.
async fn connect(unoptimised: bool) -> Result<ExitCode> {
    let mut cargo = programs::cargo();
    cargo.args(["test", "--package", "oz-webhook"]);
    cargo.args((!unoptimised).then_some("--release"));
    cargo.args(["connection_cost", "--", "--ignored", "--nocapture"]);
    let status = cargo.status().await.context("failed to run cargo")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Repeats the command with a release build: the bench program itself takes its time from the same two cores.
async fn in_release() -> Result<ExitCode> {
    let mut cargo = programs::cargo();
    cargo
        .args([
            "run",
            "--release",
            "--package",
            "oz-workshop",
            "--bin",
            "oz-workshop",
            "--target-dir",
        ])
        .arg(programs::target_directory()?)
        .arg("--")
        .args(std::env::args_os().skip(1));
    let status = cargo.status().await.context("failed to run cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Checks whether a bench runs the programs of this build.
fn runs_oz(bench: &Bench) -> bool {
    match bench {
        Bench::Peer(_) => false,
        Bench::Composites(options) => options.against.is_none(),
        _ => true,
    }
}

async fn measure(bench: &Bench, options: &Options) -> Result<()> {
    let size = options.size();
    let screen = Screen::stdout();
    if runs_oz(bench) {
        programs::build(&programs::OZ).await?;
    }
    let load = process::load_average()?;
    if let Bench::Grants(GrantsOptions {
        against: Some(programs),
        ..
    }) = bench
    {
        let mut compared = report::Compared::default();
        grants::compare(size, programs, &mut compared).await?;
        return screen.line(&compared.table(&load));
    }
    let mut report = report::Report::default();
    match bench {
        Bench::Grants(_) => {
            plan::measure(size.runs, &mut report)?;
            grants::measure(size, &mut report).await?;
            single::measure(size, &mut report).await?;
        }
        Bench::Pods(_) => pods::measure(size, &mut report).await?,
        Bench::Audit(_) => audit::measure(size, &mut report).await?,
        Bench::Approvals(_) => {
            let size = options.sized(approvals::Size::quick, approvals::Size::full);
            approvals::measure(size, &mut report).await?;
        }
        Bench::Evidence(_) => {
            programs::build(&["ozctl"]).await?;
            let requests = if options.quick { 200 } else { 1_000 };
            evidence::measure(size.runs, requests, &mut report).await?;
        }
        Bench::Scale(_) => {
            let size = options.sized(scale::Size::quick, |_| scale::Size::full());
            scale::measure(size, &mut report).await?;
        }
        Bench::Bindings(_) => {
            let size = options.sized(bindings::Size::quick, bindings::Size::full);
            bindings::measure(size, &mut report).await?;
        }
        Bench::Composites(CompositesOptions { against, .. }) => {
            let size = options.sized(composites::Size::quick, composites::Size::full);
            composites::measure(size, against.as_deref(), &mut report).await?;
        }
        Bench::Ha(_) => ha::measure(size.runs, &mut report).await?,
        Bench::Exec(_) => {
            programs::build(&["ozctl"]).await?;
            exec::measure(size.runs, size.one_by_one, &mut report).await?;
        }
        Bench::Ends(_) => ends::measure(size, &mut report).await?,
        // See `connect`.
        Bench::Connect(_) => {}
        Bench::Gate(_) => {
            programs::build(&["oz-gate"]).await?;
            let size = options.sized(gate::Size::quick, gate::Size::full);
            gate::measure(size, &mut report).await?;
        }
        Bench::Lock(_) => {
            let size = options.sized(lock::Size::quick, lock::Size::full);
            lock::measure(size, &mut report).await?;
        }
        Bench::Sessions(_) => sessions::measure(size, &mut report).await?,
        Bench::Runs(_) => runs::measure(size, &mut report).await?,
        Bench::Starts(_) => starts::measure(size, &mut report).await?,
        Bench::HarnessPolls(_) => harness_polls::measure(options, &mut report).await?,
        Bench::HarnessProxy(_) => harness_proxy::measure(options, &mut report).await?,
        Bench::Soak(_) => {
            let size = options.sized(soak::Size::quick, |_| soak::Size::full());
            soak::measure(size, &mut report).await?;
        }
        Bench::Peer(options) => peer::measure(options, size, &mut report).await?,
        Bench::Siege(options) => siege::measure(options, size.runs, &mut report).await?,
    }
    screen.line(&if options.json {
        report.json(&load)?
    } else {
        report.table(&load)
    })
}
