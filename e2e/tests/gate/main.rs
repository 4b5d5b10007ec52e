//! The gate behind a real API server, with an unmodified kubectl: the users who pass, the requests that the gate passes
//! on, and their end.

mod away;
mod debugging;
mod encrypted;
mod goaway;
mod idle;
mod kills;
mod kubeconfig;
mod live;
mod moderation;
mod passing;
mod recording;
mod restart;
mod rolling;
mod storing;
mod waiting;
mod withdrawal;

use anyhow::Result;
use oz_api::ExecAccessTemplate;
use oz_e2e::{Gate, Options, Scene, System, gate_template};
use oz_testkit::{Cluster, ClusterOptions};
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// A setup of oz with a gate, and a scene with a template that uses it; one test at a time.
struct Whole {
    system: System,
    gate: Gate,
    scene: Scene,
    _turn: MutexGuard<'static, ()>,
}

/// Returns the cluster, with an API server that finds Services by their addresses, and that closes connections at
/// random.
async fn cluster() -> Result<&'static Cluster> {
    Cluster::shared_with(ClusterOptions {
        api_server_flags: vec![
            "--enable-aggregator-routing=false".to_owned(),
            "--goaway-chance=0.02".to_owned(),
        ],
        ..ClusterOptions::default()
    })
    .await
}

impl Whole {
    async fn start(prefix: &str) -> Result<Self> {
        Self::with(prefix, &gate_template()).await
    }

    /// Sets up oz, the gate and a scene with this template.
    async fn with(prefix: &str, template: &ExecAccessTemplate) -> Result<Self> {
        let turn = TURN.lock().await;
        let cluster = cluster().await?;
        let system = System::start_with(cluster, &Gate::operator_options()).await?;
        let gate = Gate::start(cluster, &Options::default()).await?;
        let scene = Scene::set(cluster, prefix).await?;
        scene.template(template).await?;
        Ok(Self {
            system,
            gate,
            scene,
            _turn: turn,
        })
    }
}
