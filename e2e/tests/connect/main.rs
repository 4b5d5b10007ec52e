//! Connections on a real API server: the users who may connect to a pod, in enforcing and in observing namespaces, with
//! oz running and with all of it down. One cluster for all tests, and one test at a time: each has the operator and the
//! webhook to itself.

mod break_glass;
mod enforce;
mod follow;

use anyhow::Result;
use oz_testkit::Cluster;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// Returns the cluster, for as long as the guard is held.
async fn alone() -> Result<(MutexGuard<'static, ()>, &'static Cluster)> {
    let turn = TURN.lock().await;
    Ok((turn, Cluster::shared().await?))
}
