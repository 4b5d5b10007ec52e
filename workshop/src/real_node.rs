//! A scene on a real node, for recordings and measurements there.

use anyhow::{Result, ensure};
use oz_e2e::{Scene, System};
use oz_testkit::{Cluster, ClusterOptions, Node};

/// Starts a cluster with a real node, which ends with the first value, and returns also a reference to it: a
/// scene requires a static one, which costs a few bytes. Requires root and Debian packages.
pub(crate) async fn cluster() -> Result<(Cluster, &'static Cluster)> {
    ensure!(
        Node::Real.is_possible()?,
        "this takes a real node: root and Debian packages"
    );
    let options = ClusterOptions {
        node: Node::Real,
        ..ClusterOptions::default()
    };
    let owner = Cluster::start(options).await?;
    let handle = Cluster::attach(owner.state_dir())?;
    Ok((owner, Box::leak(Box::new(handle))))
}

/// oz on a cluster with a real node, and a scene of which the users may read. All of it ends when it is
/// dropped.
pub(crate) struct RealNode {
    pub(crate) scene: Scene,
    _system: System,
    _owner: Cluster,
}

impl RealNode {
    /// Starts it; the name of the scene's namespace begins with `prefix`.
    pub(crate) async fn start(prefix: &str) -> Result<Self> {
        let (owner, cluster) = cluster().await?;
        let system = System::start(cluster).await?;
        let scene = Scene::set(cluster, prefix).await?;
        scene.people_may_look().await?;
        Ok(Self {
            scene,
            _system: system,
            _owner: owner,
        })
    }
}
