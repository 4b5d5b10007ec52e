//! Composites: the cost of a policy in process and of a query to OPA; the time until thousands of parents
//! converge and their cost afterwards; the delays of the begin and end of children, also while the functions
//! of others hang.

mod ends;
mod policy;
mod probe;
mod scale;
mod world;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use oz_e2e::{Operator, Options, System};

use super::process::resident;
use super::report::{Budget, Report};
use super::scene;
use world::World;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) runs: u32,
    /// Parents with one child each.
    parents: usize,
    /// Duration of the idle phase.
    idle: Duration,
    /// Children that begin and end within a minute.
    windows: usize,
    /// Composites of which the functions never respond, with a parent each.
    hanging: usize,
    /// Grants that end at one instant.
    grants: usize,
}

impl Size {
    pub(super) const fn full(runs: u32) -> Self {
        Self {
            runs,
            parents: 2_500,
            idle: Duration::from_secs(60),
            windows: 200,
            hanging: 50,
            grants: 50,
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            runs: 1,
            parents: 300,
            idle: Duration::from_secs(15),
            windows: 40,
            hanging: 50,
            grants: 20,
        }
    }
}

/// Measures composites; or, with the sources of another version of oz, a policy alone.
pub(super) async fn measure(size: Size, other: Option<&Path>, report: &mut Report) -> Result<()> {
    policy::measure(size.runs, other, report).await?;
    if other.is_some() {
        return Ok(());
    }
    let (_owner, cluster) = scene::cluster().await?;
    let without = Options::default();
    oz_e2e::install(cluster).await?;
    for _ in 0..size.runs {
        let operator = Operator::start(cluster, &without).await?;
        let memory = resident(operator.process.pid())?;
        report.add(
            "operator without composites, memory",
            "MiB",
            Budget::None,
            memory,
        );
    }
    let world = World::install(cluster).await?;
    let system = System::start_with(cluster, &world.options).await?;
    for run in 0..size.runs {
        ends::measure(cluster, &world, run, size, report).await?;
    }
    scale::measure(cluster, &world, &system.operator, size, report).await
}
