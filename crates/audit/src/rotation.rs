//! A new key from time to time. The old one vouches for it first, so that who pinned the old one
//! goes on without doing anything; what the old one has signed stays signed.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use oz_core::audit::AuditKey;
use oz_runtime::Task;

use crate::Trail;
use crate::key::{cell, data, key_in, publish, random};

/// How often to look whether it is time.
const LOOK: Duration = Duration::from_secs(3_600);

/// Replaces the key whenever it is older than `life`.
pub struct KeyRotation {
    /// What it signs.
    pub trail: Trail,
    /// Reads and writes the key.
    pub client: Client,
    /// Where the key is.
    pub namespace: String,
    /// How old it gets.
    pub life: SignedDuration,
}

impl Task for KeyRotation {
    async fn run(&self) {
        loop {
            if let Err(error) = self.rotate_if_due().await {
                tracing::warn!("failed to replace the audit key: {error:#}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl KeyRotation {
    async fn rotate_if_due(&self) -> anyhow::Result<()> {
        let cell = cell(&self.client, &self.namespace);
        let now = self.trail.shared.clock.now();
        let Some(found) = cell.older(self.life, now).await? else {
            return Ok(());
        };
        let before = key_in(&found)?;
        let bytes = random()?;
        let key = AuditKey::new(&bytes);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        publish(&maps, &key, Some(&before)).await?;
        if !cell.replace(found, data(&bytes), now).await? {
            return Ok(());
        }
        self.trail.ledger().swap_key(key.clone());
        tracing::info!(key = key.id(), "made a new audit key");
        self.trail.key_made(&key.published(Some(&before)));
        Ok(())
    }
}
