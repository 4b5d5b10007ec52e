//! Harness runs on a real API server: one cluster and one oz for all tests, a namespace for each. The node is a
//! simulated one; what the containers of runs do is tested on a real one.

mod admission;
mod broker;
mod definitions;
mod runs;
mod support;

use anyhow::Result;
use oz_e2e::{install, install_harness};
use oz_testkit::Cluster;
use tokio::sync::OnceCell;

static INSTALLED: OnceCell<&'static Cluster> = OnceCell::const_new();

/// The cluster, with the kinds and the roles of oz and of harness runs.
async fn cluster() -> Result<&'static Cluster> {
    let installed = INSTALLED.get_or_try_init(|| async {
        let cluster = Cluster::shared().await?;
        install(cluster).await?;
        install_harness(cluster)?;
        anyhow::Ok(cluster)
    });
    installed.await.copied()
}
