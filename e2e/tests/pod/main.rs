//! Dedicated pods on a real API server: one cluster and one oz for all tests, a namespace for each. The operator has a
//! short timeout for pods that do not become ready.

mod end;
mod grant;
mod jobs;
mod ready;
mod rollout;
mod support;

use anyhow::Result;
use oz_e2e::{Options, Scene, System};
use oz_testkit::Cluster;
use tokio::sync::OnceCell;

static SYSTEM: OnceCell<System> = OnceCell::const_new();

/// Returns the oz of this process, which the first test starts.
async fn system() -> Result<&'static System> {
    let cluster = Cluster::shared().await?;
    let options = Options::default().set("operator.podReadyTimeout", "45s");
    SYSTEM
        .get_or_try_init(|| System::start_with(cluster, &options))
        .await
}

async fn scene(prefix: &str) -> Result<Scene> {
    system().await?;
    Scene::set(Cluster::shared().await?, prefix).await
}
