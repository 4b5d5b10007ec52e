//! The audit trail: recorded before an action takes effect, complete after any failure of the processes, and reported
//! as
//! incomplete as soon as a user tampers with it. One cluster for all tests, one test at a time.

mod approvals;
mod crash;
mod emergencies;
mod escalation;
mod evidence;
mod guard;
mod lends;
mod locks;
mod notifications;
mod on_call;
mod ozctl;
mod policies;
mod run_emergencies;
mod run_tickets;
mod runs;
mod sinks;
mod support;
mod tampering;
mod tickets;
mod whole;

use anyhow::Result;
use oz_testkit::Cluster;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// Returns the cluster, for as long as the guard is held.
async fn alone() -> Result<(MutexGuard<'static, ()>, &'static Cluster)> {
    let turn = TURN.lock().await;
    Ok((turn, Cluster::shared().await?))
}
