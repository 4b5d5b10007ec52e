//! Attempts to get more than was granted, each with what is expected to come of it, on a real API
//! server. docs/reference/attempts.md is made from the doc comments: what is tried, and after the
//! colon what comes of it.

mod approving;
mod asked;
mod authors;
mod bytes;
mod connecting;
mod emergencies;
mod ends;
mod gate;
mod gate_debug;
mod gate_live;
mod gate_protocol;
mod gate_sessions;
mod gate_spool;
mod gating;
mod identity;
mod locking;
mod locks;
mod memory;
mod numbers;
mod objects;
mod poison;
mod policies;
mod port;
mod posting;
mod record;
mod requests;
mod runs;
mod seals;
mod smaller;
mod tickets;
mod unseen;

use std::ops::Deref;

use anyhow::Result;
use oz_e2e::{Scene, System};
use oz_testkit::{Cluster, ClusterOptions};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The oz of this process: shared by all tests but those that stop it.
static SYSTEM: RwLock<Option<System>> = RwLock::const_new(None);

/// The cluster of this process. Its API server finds Services by their addresses, and so a gate on loopback.
async fn cluster() -> Result<&'static Cluster> {
    Cluster::shared_with(ClusterOptions {
        api_server_flags: vec!["--enable-aggregator-routing=false".to_owned()],
        ..ClusterOptions::default()
    })
    .await
}

/// A scene, and the oz that watches it.
struct Stage {
    system: Held,
    scene: Scene,
}

/// Together with whom it is used.
enum Held {
    Shared(RwLockReadGuard<'static, Option<System>>),
    Alone(RwLockWriteGuard<'static, Option<System>>),
}

impl Stage {
    async fn set(prefix: &str) -> Result<Self> {
        let system = Held::Shared(system().await?);
        let scene = Scene::set(cluster().await?, prefix).await?;
        Ok(Self { system, scene })
    }

    /// One with nobody beside it, for attempts by which others would suffer.
    async fn alone(prefix: &str) -> Result<Self> {
        let mut system = SYSTEM.write().await;
        let cluster = cluster().await?;
        if system.is_none() {
            *system = Some(smaller::start(cluster).await?);
        }
        let scene = Scene::set(cluster, prefix).await?;
        Ok(Self {
            system: Held::Alone(system),
            scene,
        })
    }

    fn oz(&self) -> Result<&System> {
        let system = match &self.system {
            Held::Shared(system) => system.as_ref(),
            Held::Alone(system) => system.as_ref(),
        };
        system.ok_or(anyhow::anyhow!("oz is stopped"))
    }
}

impl Deref for Stage {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

/// A scene, with oz stopped and its hooks still registered. `smaller::start` has it go on, and the place
/// is where it goes then.
async fn stopped(prefix: &str) -> Result<(RwLockWriteGuard<'static, Option<System>>, Scene)> {
    let mut place = SYSTEM.write().await;
    let cluster = cluster().await?;
    if place.is_none() {
        *place = Some(smaller::start(cluster).await?);
    }
    let scene = Scene::set(cluster, prefix).await?;
    drop(place.take());
    Ok((place, scene))
}

async fn system() -> Result<RwLockReadGuard<'static, Option<System>>> {
    loop {
        let there = SYSTEM.read().await;
        if there.is_some() {
            return Ok(there);
        }
        drop(there);
        let mut place = SYSTEM.write().await;
        if place.is_none() {
            *place = Some(smaller::start(cluster().await?).await?);
        }
    }
}
