//! The broker, and the harness run commands of ozctl, on a real API server without an operator: the tests write the
//! statuses of the runs.

mod broker;
mod definitions;
mod verbs;

use anyhow::Result;
use oz_e2e::{apply, install, install_harness};
use oz_testkit::Cluster;
use tokio::sync::OnceCell;

static INSTALLED: OnceCell<&'static Cluster> = OnceCell::const_new();

/// The cluster, with the kinds and the roles of oz and of harness runs.
async fn cluster() -> Result<&'static Cluster> {
    let installed = INSTALLED.get_or_try_init(|| async {
        let cluster = Cluster::shared().await?;
        install(cluster).await?;
        install_harness(cluster)?;
        apply(cluster, "deploy/policies/harness/pods.yaml")?;
        anyhow::Ok(cluster)
    });
    installed.await.copied()
}
