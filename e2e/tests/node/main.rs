//! oz on a real node, where pods run and an exec starts a process. One cluster for all tests; those that need oz take
//! turns, each with a separate one. The tests require root and Debian packages; without them they report that and are
//! skipped.

mod access;
mod approving;
mod chart;
mod exec;
mod gate;
mod gate_clients;
mod gate_debug;
mod gate_ends;
mod gate_kubectl;
mod harness;
mod images;
mod interception;
mod late;
mod ozctl;
mod pod;
mod proxied;
mod script;
mod sessions;
mod stranger;
mod streams;

use anyhow::Result;
use oz_testkit::{Cluster, ClusterOptions, Node};
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// Returns the cluster for a test that has an oz to itself, for as long as the guard is held; or none where no cluster
/// is possible.
async fn alone() -> Result<Option<(MutexGuard<'static, ()>, &'static Cluster)>> {
    let turn = TURN.lock().await;
    Ok(cluster().await?.map(|cluster| (turn, cluster)))
}

/// Returns the cluster of this process, or none where no cluster is possible. `OZ_REQUIRE_ALL` makes that a failure.
async fn cluster() -> Result<Option<&'static Cluster>> {
    let starts_one = std::env::var("CLUSTER").unwrap_or_default().is_empty();
    if starts_one && !Node::Real.is_possible()? {
        return Ok(None);
    }
    let options = ClusterOptions {
        node: Node::Real,
        ..ClusterOptions::default()
    };
    Cluster::shared_with(options).await.map(Some)
}
