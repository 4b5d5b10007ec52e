//! The key of the trail while a process runs: another one is taken up, and what was deleted of it comes back.
//! A Secret that was deleted or emptied gets a new key, for which the one in use vouches, so that who
//! pinned that goes on without doing anything. The ConfigMap gets back what it said.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ApiResource;
use kube::{Api, Client};
use oz_core::audit::AuditKey;
use oz_core::names::AUDIT_PUBLIC_KEYS;
use oz_runtime::{Guarded, Selection, StoreEvent, Task, guarded_watch, is_empty};

use crate::Trail;
use crate::key::{cell, data, key_in, publish, publish_entry, random};

/// After a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the key of a trail what the Secret says, and published.
pub struct AuditKeyWatch {
    /// What it signs.
    pub trail: Trail,
    /// Reads and writes the key.
    pub client: Client,
    /// Where the key is.
    pub namespace: String,
}

/// What an event says of the one object that is watched.
enum Seen<K> {
    There(K),
    Gone,
    Nothing,
}

/// Tells an object that is gone from one that is not listed yet.
#[derive(Default)]
struct Listing {
    found: bool,
}

impl Listing {
    fn take<K>(&mut self, event: StoreEvent<Guarded<K>>) -> Seen<K> {
        match event {
            StoreEvent::Init => self.found = false,
            StoreEvent::InitApply(object) | StoreEvent::Apply(object) => {
                self.found = true;
                match object.0 {
                    Ok(object) => return Seen::There(object),
                    Err(error) => {
                        tracing::warn!(%error, "an object with audit keys cannot be read")
                    }
                }
            }
            StoreEvent::InitDone if !self.found => return Seen::Gone,
            StoreEvent::Delete(_) => return Seen::Gone,
            StoreEvent::InitDone => {}
        }
        Seen::Nothing
    }
}

impl Task for AuditKeyWatch {
    async fn run(&self) {
        let mut secrets = cell(&self.client, &self.namespace).watch();
        let resource = ApiResource::erase::<ConfigMap>(&());
        let this = Selection::named(AUDIT_PUBLIC_KEYS);
        let maps = guarded_watch::<ConfigMap>(&self.client, &resource, Some(&self.namespace), this);
        let mut maps = maps.0;
        let (mut secret, mut map) = (Listing::default(), Listing::default());
        let mut published = BTreeMap::new();
        loop {
            tokio::select! {
                event = secrets.next(|_| {}) => match secret.take(event) {
                    Seen::There(secret) if is_empty(&secret) => self.renew().await,
                    Seen::There(secret) => self.adopt(&secret),
                    Seen::Gone => self.renew().await,
                    Seen::Nothing => {}
                },
                event = maps.next(|_| {}) => match map.take(event) {
                    Seen::There(map) => {
                        published = map.data.unwrap_or_default();
                        if !published.contains_key(&self.key_id()) {
                            self.publish_again(&BTreeMap::new()).await;
                        }
                    }
                    Seen::Gone => self.publish_again(&published).await,
                    Seen::Nothing => {}
                },
            }
        }
    }
}

impl AuditKeyWatch {
    fn key_id(&self) -> String {
        self.trail.ledger().key().id().to_owned()
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Signs with the key that the Secret holds from now on.
    fn adopt(&self, secret: &Secret) {
        match key_in(secret) {
            Ok(key) if key.id() != self.key_id() => self.swap(key),
            Ok(_) => {}
            Err(error) => tracing::error!(
                "the audit key cannot be used, so the one before it stays in use: {error:#}"
            ),
        }
    }

    fn swap(&self, key: AuditKey) {
        tracing::info!(key = key.id(), "took up another audit key");
        self.trail.ledger().swap_key(key);
    }

    /// Another key where there is none any more, by whichever process is first.
    async fn renew(&self) {
        let before = self.trail.ledger().key().clone();
        let cell = cell(&self.client, &self.namespace);
        let cell = &cell;
        let fill = || async move { cell.filled(|| Ok(data(&random()?))).await };
        let (secret, made) = until_done(fill).await;
        if !made {
            return self.adopt(&secret);
        }
        let key = match key_in(&secret) {
            Ok(key) => key,
            Err(error) => return tracing::error!("the new audit key cannot be used: {error:#}"),
        };
        let (maps, new, old) = (&self.maps(), &key, &before);
        until_done(|| publish(maps, new, Some(old))).await;
        self.swap(key.clone());
        self.trail.key_made(&key.published(Some(&before)));
    }

    /// What was published, and the key in use.
    async fn publish_again(&self, published: &BTreeMap<String, String>) {
        let maps = &self.maps();
        let key = &self.trail.ledger().key().clone();
        until_done(|| async move {
            for (id, text) in published {
                publish_entry(maps, id, text.clone()).await?;
            }
            publish(maps, key, None).await
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
