//! Failures: parts of oz are missing, killed, or have a wrong time. One cluster for all tests, and one test at a time:
//! each has the operator and the webhook to itself.

mod approvals;
mod clock;
mod composites;
mod crash;
mod earlier;
mod every_kind;
mod keep;
mod keys;
mod leader;
mod lists;
mod path;
mod pods;
mod replicas;
mod run_clock;
mod stalled;
mod watching;

use anyhow::Result;
use oz_testkit::Cluster;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// Returns the cluster, for as long as the guard is held.
async fn alone() -> Result<(MutexGuard<'static, ()>, &'static Cluster)> {
    let turn = TURN.lock().await;
    Ok((turn, Cluster::shared().await?))
}
