//! Rotation of the signing keys; each component rotates its own. The operator's old key vouches for the new one before
//! the rotation, so that the pinned key stays valid. The operator vouches for a new key of another writer when that key
//! is published. Signatures by the old key stay valid.

use std::time::Duration;

use jiff::SignedDuration;
use oz_runtime::Task;
use oz_trail::AuditKey;

use crate::Trail;
use crate::key::random;

/// The interval between two checks of the age of a key.
const LOOK: Duration = Duration::from_secs(3_600);

/// A task that replaces the key when it is older than its lifetime.
pub struct KeyRotation {
    trail: Trail,
    life: SignedDuration,
}

impl KeyRotation {
    /// Creates a task that replaces the key of a trail.
    #[must_use]
    pub fn new(trail: &Trail, audit: &oz_config::Audit) -> Self {
        Self {
            trail: trail.clone(),
            life: audit.key_life.0,
        }
    }

    async fn rotate_if_due(&self) -> anyhow::Result<()> {
        let keys = &self.trail.shared.keys;
        let cell = keys.cell();
        let now = self.trail.shared.clock.now();
        let Some(found) = cell.older(self.life, now).await? else {
            return Ok(());
        };
        let before = keys.key_in(&found)?;
        let before = keys.is_operator().then_some(&before);
        let bytes = random()?;
        let key = AuditKey::new(&bytes);
        if before.is_some() {
            // A verifier that trusts the old key trusts the new key from its first signature on.
            keys.publish_vouched(&key, before).await?;
        }
        if !cell.replace(found, keys.data(&bytes), now).await? {
            return Ok(());
        }
        // The key signs even if it cannot be published at once: `AuditKeyWatch` retries the publication.
        self.trail.swap_key(key.clone());
        tracing::info!(key = key.id(), "created a new audit key");
        self.trail.key_made(&key.published(before));
        keys.publish(&key, None).await
    }
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
