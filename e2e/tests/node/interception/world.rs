//! The scene of agents for a test, with what the tests of this process share: the upstream, of which a node has one, and
//! imported images.

use std::ops::{Deref, DerefMut};

use anyhow::Result;
use oz_e2e::agents::{AgentScene, HARNESS_IMAGE, agent_upstream, import_agents};
use oz_e2e::harness_image_archive;
use oz_e2e::upstream::Upstream;
use oz_testkit::Cluster;
use tokio::sync::{MutexGuard, OnceCell};

use crate::alone;

static UPSTREAM: OnceCell<Upstream> = OnceCell::const_new();
static AGENTS: OnceCell<()> = OnceCell::const_new();
static HARNESS: OnceCell<()> = OnceCell::const_new();

/// A scene of agents that has the cluster to itself.
pub(super) struct World {
    scene: AgentScene,
    _turn: MutexGuard<'static, ()>,
}

/// Returns the upstream, which the first test starts.
pub(crate) async fn upstream(cluster: &'static Cluster) -> Result<&'static Upstream> {
    UPSTREAM
        .get_or_try_init(async || agent_upstream(cluster))
        .await
}

/// Imports the image of the agents, once.
pub(super) async fn agent_image(cluster: &Cluster) -> Result<()> {
    let imported = AGENTS.get_or_try_init(async || import_agents(cluster));
    imported.await.copied()
}

/// Imports the image of oz's container in the pods of runs, once.
async fn harness_image(cluster: &Cluster) -> Result<()> {
    let imported =
        HARNESS.get_or_try_init(async || cluster.import_image_archive(&harness_image_archive()?));
    imported.await.copied()
}

impl World {
    /// Starts oz; none where no real node is possible. The name of the namespace begins with `prefix`.
    pub(super) async fn start(prefix: &str) -> Result<Option<Self>> {
        Self::start_with(prefix, HARNESS_IMAGE).await
    }

    /// Starts oz like [`World::start`], with another image of oz's container.
    pub(super) async fn start_with(prefix: &str, image: &str) -> Result<Option<Self>> {
        let Some((turn, cluster)) = alone().await? else {
            return Ok(None);
        };
        let upstream = upstream(cluster).await?;
        agent_image(cluster).await?;
        harness_image(cluster).await?;
        Ok(Some(Self {
            scene: AgentScene::start(cluster, upstream, prefix, image).await?,
            _turn: turn,
        }))
    }
}

impl Deref for World {
    type Target = AgentScene;

    fn deref(&self) -> &AgentScene {
        &self.scene
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut AgentScene {
        &mut self.scene
    }
}
