//! Attempts to get more access than granted, each with its expected result, on a real API server.
//! docs/reference/attempts.md is generated from the doc comments: the attempt, and the result after the colon.

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

/// The oz of this process: all tests share it, except those that stop it.
static SYSTEM: RwLock<Option<System>> = RwLock::const_new(None);

/// Returns the cluster of this process. Its API server connects to the addresses of Services, and therefore reaches a
/// gate on loopback.
async fn cluster() -> Result<&'static Cluster> {
    Cluster::shared_with(ClusterOptions {
        api_server_flags: vec!["--enable-aggregator-routing=false".to_owned()],
        ..ClusterOptions::default()
    })
    .await
}

/// A scene, and the oz that watches it.
struct Stage {
    system: SystemGuard,
    scene: Scene,
}

/// The guard of oz: shared with other tests, or exclusive.
enum SystemGuard {
    Shared(RwLockReadGuard<'static, Option<System>>),
    Alone(RwLockWriteGuard<'static, Option<System>>),
}

impl Stage {
    async fn set(prefix: &str) -> Result<Self> {
        let system = SystemGuard::Shared(system().await?);
        let scene = Scene::set(cluster().await?, prefix).await?;
        Ok(Self { system, scene })
    }

    /// Returns a stage with exclusive use of oz, for attempts that would disturb other tests.
    async fn alone(prefix: &str) -> Result<Self> {
        let mut system = SYSTEM.write().await;
        let cluster = cluster().await?;
        if system.is_none() {
            *system = Some(smaller::start(cluster).await?);
        }
        let scene = Scene::set(cluster, prefix).await?;
        Ok(Self {
            system: SystemGuard::Alone(system),
            scene,
        })
    }

    fn oz(&self) -> Result<&System> {
        let system = match &self.system {
            SystemGuard::Shared(system) => system.as_ref(),
            SystemGuard::Alone(system) => system.as_ref(),
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

/// Stops oz and returns a scene; the hooks remain registered. `smaller::start` starts oz again, and the guard stores
/// it.
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
