//! oz on a real node, where pods run and an exec is one. One cluster and one oz for all tests. Takes
//! root and Debian packages; without them the tests say so and are skipped.

mod access;
mod exec;

use anyhow::Result;
use oz_testkit::{Cluster, ClusterOptions, Node};

/// The cluster of this process, or none where there can be none. `OZ_REQUIRE_ALL` makes that a
/// failure.
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
