//! Exec access on a real API server: one cluster and one oz for all tests, a namespace for each.

mod approving;
mod deletion;
mod emergencies;
mod end;
mod examples;
mod grant;
mod jobs;
mod locking;
mod refusal;

use anyhow::Result;
use oz_e2e::{Scene, System};
use oz_testkit::Cluster;
use tokio::sync::OnceCell;

static SYSTEM: OnceCell<System> = OnceCell::const_new();

/// Returns the oz of this process, which the first test starts.
async fn system() -> Result<&'static System> {
    let cluster = Cluster::shared().await?;
    SYSTEM.get_or_try_init(|| System::start(cluster)).await
}

async fn scene(prefix: &str) -> Result<Scene> {
    system().await?;
    Scene::set(Cluster::shared().await?, prefix).await
}
