//! A new key from time to time. The old one vouches for it first, so that who pinned the old one
//! goes on without doing anything; what the old one has signed stays signed.

use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use oz_core::audit::AuditKey;
use oz_core::names::AUDIT_KEY;
use tokio_util::sync::CancellationToken;

use super::Trail;
use super::key::{data, key_in, publish, random};
use oz_runtime::secret_cell;

/// How often to look whether it is time.
const LOOK: Duration = Duration::from_secs(3_600);

/// Replaces the key whenever it is older than `life`, until `shutdown`.
pub async fn rotate_keys(
    trail: Trail,
    client: Client,
    namespace: String,
    life: SignedDuration,
    shutdown: CancellationToken,
) {
    loop {
        match rotate_if_due(&trail, &client, &namespace, life).await {
            Ok(()) => {}
            Err(error) => tracing::warn!("failed to replace the audit key: {error:#}"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

async fn rotate_if_due(
    trail: &Trail,
    client: &Client,
    namespace: &str,
    life: SignedDuration,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get(AUDIT_KEY).await?;
    let now = trail.shared.clock.now();
    let Some(made) = secret_cell::made(&found) else {
        return Ok(());
    };
    if now.duration_since(made) < life {
        return Ok(());
    }
    let before = key_in(&found)?;
    let bytes = random()?;
    let key = AuditKey::new(&bytes);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    publish(&maps, &key, Some(&before)).await?;
    // Another replica may have been faster, and then is right: the resource version tells.
    let mut next = found;
    next.data = Some(data(&bytes));
    secret_cell::made_at(&mut next, now);
    match secrets
        .replace(AUDIT_KEY, &PostParams::default(), &next)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(()),
        other => other.context("failed to update the Secret")?,
    };
    trail.ledger().swap_key(key.clone());
    tracing::info!(key = key.id(), "made a new audit key");
    trail.key_made(&key.published(Some(&before)));
    Ok(())
}
