//! The audit trail: on record before it takes effect, whole whatever happens to the processes, and
//! not whole as soon as somebody lays hands on it. One cluster for all tests, one test at a time.

mod approvals;
mod crash;
mod emergencies;
mod evidence;
mod guard;
mod locks;
mod notifications;
mod ozctl;
mod policies;
mod runs;
mod server;
mod sinks;
mod support;
mod tampering;
mod tickets;
mod whole;

use anyhow::Result;
use oz_testkit::Cluster;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// The cluster, for as long as the guard is held.
async fn alone() -> Result<(MutexGuard<'static, ()>, &'static Cluster)> {
    let turn = TURN.lock().await;
    Ok((turn, Cluster::shared().await?))
}
