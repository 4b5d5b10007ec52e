//! Follows the signing key while a process runs: adopts a replaced key, and restores deleted Secrets and ConfigMaps. If
//! the operator's Secret is deleted or emptied, the operator creates a new key, and the key in use vouches for it, so
//! that the pinned key stays valid. The operator restores the entries of the ConfigMap. Another writer fills an emptied
//! Secret, and uses its current key while the Secret does not exist.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ApiResource;
use oz_api::names::AUDIT_PUBLIC_KEYS;
use oz_runtime::{Guarded, Retried, Selection, StoreEvent, Task, guarded_watch};
use oz_trail::AuditKey;

use crate::Trail;
use crate::key::{WriterKeys, publish_entry};

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause after a failed publication of the public key: the Secret can be missing for a long time.
const PUBLISH_AGAIN: Duration = Duration::from_secs(30);

/// A task that keeps the key of a trail equal to the key in the Secret, and published.
pub struct AuditKeyWatch {
    /// The trail that the key signs.
    pub trail: Trail,
}

/// The state of the watched object after an event.
enum WatchedState<K> {
    There(K),
    Gone,
    Nothing,
}

/// A listing that distinguishes a deleted object from one that is not listed yet.
#[derive(Default)]
struct Listing {
    found: bool,
}

impl Listing {
    fn take<K>(&mut self, event: StoreEvent<Guarded<K>>) -> WatchedState<K> {
        match event {
            StoreEvent::Init => self.found = false,
            StoreEvent::InitApply(object) | StoreEvent::Apply(object) => {
                self.found = true;
                match object.0 {
                    Ok(object) => return WatchedState::There(object),
                    Err(error) => {
                        tracing::warn!(%error, "failed to read an object with audit keys")
                    }
                }
            }
            StoreEvent::InitDone if !self.found => return WatchedState::Gone,
            StoreEvent::Delete(_) => return WatchedState::Gone,
            StoreEvent::InitDone => {}
        }
        WatchedState::Nothing
    }
}

impl Task for AuditKeyWatch {
    async fn run(&self) {
        let keys = self.keys();
        let cell = keys.cell();
        let mut secrets = cell.watch();
        let public = keys.public();
        let mut publics = public.watch();
        let mut maps = keys.is_operator().then(|| watch_map(keys));
        let (mut secret, mut map) = (Listing::default(), Listing::default());
        let mut published = BTreeMap::new();
        // Whether the public key is still to be published.
        let mut is_due = false;
        loop {
            tokio::select! {
                event = secrets.next(|_| {}) => match secret.take(event) {
                    WatchedState::There(secret) if cell.is_empty(&secret) => is_due = self.renew().await,
                    WatchedState::There(secret) => is_due = self.adopt(&secret).await,
                    WatchedState::Gone if keys.is_operator() => is_due = self.renew().await,
                    WatchedState::Gone => tracing::error!(
                        secret = %cell,
                        "the Secret with the audit key does not exist, and this process may not \
                            create Secrets: it keeps the key in use"
                    ),
                    WatchedState::Nothing => {}
                },
                event = publics.next(|_| {}) => {
                    let said = public.said(event).and_then(Result::ok);
                    // Another replica has replaced the key, or another client has changed the published key.
                    if said.is_some_and(|said| said != Some(self.key().public())) {
                        is_due = self.renew().await;
                    }
                }
                event = next(&mut maps) => match map.take(event) {
                    WatchedState::There(map) => {
                        published = map.data.into_iter().flatten().collect();
                        if !published.contains_key(self.key().id()) {
                            self.publish_again(&BTreeMap::new()).await;
                        }
                    }
                    WatchedState::Gone => self.publish_again(&published).await,
                    WatchedState::Nothing => {}
                },
                () = tokio::time::sleep(PUBLISH_AGAIN), if is_due => is_due = self.publish().await,
            }
        }
    }
}

fn watch_map(keys: &WriterKeys) -> Retried<ConfigMap> {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let this = Selection::with_name(AUDIT_PUBLIC_KEYS);
    guarded_watch(&keys.client, &resource, Some(&keys.namespace), this).0
}

async fn next(maps: &mut Option<Retried<ConfigMap>>) -> StoreEvent<Guarded<ConfigMap>> {
    match maps {
        Some(maps) => maps.next(|_| {}).await,
        None => std::future::pending().await,
    }
}

impl AuditKeyWatch {
    fn keys(&self) -> &WriterKeys {
        &self.trail.shared.keys
    }

    fn key(&self) -> AuditKey {
        self.trail.ledger().key().clone()
    }

    /// Starts to sign with the key in the Secret. Returns whether the key is still to be published.
    async fn adopt(&self, secret: &Secret) -> bool {
        match self.keys().key_in(secret) {
            Ok(key) => {
                if key.id() != self.key().id() {
                    tracing::info!(key = key.id(), "loaded another audit key");
                    self.trail.swap_key(key.clone());
                }
                self.publish().await
            }
            Err(error) => {
                tracing::error!("failed to use the audit key; keeping the previous one: {error:#}");
                false
            }
        }
    }

    /// Publishes the public key in the Secret of the component. Returns whether it is still to be published.
    async fn publish(&self) -> bool {
        let published = self.keys().public().publish(&self.key().public()).await;
        if let Err(error) = &published {
            tracing::warn!("the operator failed to vouch for the audit key: {error:#}");
        }
        published.is_err()
    }

    /// Adopts the key in the Secret, or creates a new key if the Secret has none. Returns whether the key is still to
    /// be published.
    async fn renew(&self) -> bool {
        let keys = self.keys();
        let before = self.key();
        let cell = keys.cell();
        let cell = &cell;
        let fill = || async move { cell.filled(|| keys.fresh()).await };
        let (secret, made) = until_done(fill).await;
        if !made {
            return self.adopt(&secret).await;
        }
        let key = match keys.key_in(&secret) {
            Ok(key) => key,
            Err(error) => {
                tracing::error!("failed to use the new audit key: {error:#}");
                return false;
            }
        };
        let before = keys.is_operator().then_some(&before);
        let new = &key;
        if before.is_some() {
            until_done(|| keys.publish_vouched(new, before)).await;
        }
        self.trail.swap_key(key.clone());
        self.trail.key_made(&key.published(before));
        self.publish().await
    }

    /// Publishes the earlier entries and the key in use again.
    async fn publish_again(&self, published: &BTreeMap<String, String>) {
        let keys = self.keys();
        let maps = &keys.maps();
        let key = &self.key();
        until_done(|| async move {
            for (id, text) in published {
                publish_entry(maps, id, text.clone()).await?;
            }
            keys.publish_vouched(key, None).await
        })
        .await;
    }
}

async fn until_done<T, F>(attempt: impl Fn() -> F) -> T
where
    F: Future<Output = anyhow::Result<T>>,
{
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => tracing::warn!("failed to restore the audit key: {error:#}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
