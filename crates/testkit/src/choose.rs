//! The choice of the cluster of a test: the environment chooses, and a process shares one cluster.

use std::sync::OnceLock;

use anyhow::{Result, bail};

use crate::cluster::{Cluster, ClusterOptions};
use crate::node::Node;

impl Cluster {
    /// Returns the cluster that the variable `CLUSTER` names: a new one when it is unset or empty,
    /// `current` for [`Cluster::connect_current`], `up` for the one that `cargo xtask cluster up`
    /// started.
    ///
    /// # Errors
    ///
    /// Fails like those functions, and for any other value.
    pub async fn from_environment() -> Result<Self> {
        Self::from_environment_with(ClusterOptions::default()).await
    }

    /// Does the same as [`Cluster::from_environment`]; a new cluster has `options`.
    ///
    /// # Errors
    ///
    /// As [`Cluster::from_environment`], and when a real node is required and the cluster of
    /// `cargo xtask cluster up` has none.
    pub async fn from_environment_with(options: ClusterOptions) -> Result<Self> {
        let wanted = options.node;
        let cluster = match std::env::var("CLUSTER").unwrap_or_default().as_str() {
            "" => Self::start(options).await?,
            "current" => Self::connect_current().await?,
            "up" => Self::attach(&crate::development_directory()?)?,
            other => bail!("failed to choose a cluster: CLUSTER={other} is none of current, up"),
        };
        if wanted == Node::Real && cluster.node() == Node::Kwok {
            bail!(
                "failed to use the cluster of CLUSTER=up: it has no real node; \
                 `cargo xtask cluster up --node` starts one that has"
            );
        }
        Ok(cluster)
    }

    /// Returns the cluster of this process, as [`Cluster::from_environment`] chooses it, started by
    /// the first call. For test binaries with many tests; it ends with the process.
    ///
    /// # Errors
    ///
    /// Fails, for every caller alike, when the cluster failed to start.
    pub async fn shared() -> Result<&'static Self> {
        Self::shared_with(ClusterOptions::default()).await
    }

    /// Does the same as [`Cluster::shared`]; the call that starts the cluster decides with which
    /// options.
    ///
    /// # Errors
    ///
    /// As [`Cluster::shared`].
    pub async fn shared_with(options: ClusterOptions) -> Result<&'static Self> {
        tokio::task::spawn_blocking(|| {
            SHARED
                .get_or_init(|| start_shared(options))
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error}"))
        })
        .await?
    }
}

static SHARED: OnceLock<std::result::Result<Cluster, String>> = OnceLock::new();

fn start_shared(options: ClusterOptions) -> std::result::Result<Cluster, String> {
    let started = || -> Result<Cluster> {
        // A separate runtime: the runtimes of the tests end while the cluster continues.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let cluster = runtime.block_on(Cluster::from_environment_with(options))?;
        // Statics are never dropped.
        crate::system::at_exit(end_shared);
        Ok(cluster)
    };
    started().map_err(|error| format!("{error:#}"))
}

extern "C" fn end_shared() {
    let _ = std::panic::catch_unwind(|| {
        if let Some(Ok(cluster)) = SHARED.get() {
            cluster.end();
        }
    });
}
