//! The operator vouches for the signing keys of the other writers, each for one name. It reads a public key from the
//! Secret that only its writer may write, publishes the signed statement for auditors, and records it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use oz_api::names::{AUDIT_PUBLIC_KEYS, OTHER_WRITERS};
use oz_runtime::{Selection, StoreEvent, Task, guarded_watch};
use oz_trail::Published;

use crate::Trail;
use crate::key::{WriterKeys, publish_entry};

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// A task that vouches for the keys of the other writers, in the leading replica of the operator.
pub struct WriterVouching {
    trail: Trail,
}

impl WriterVouching {
    /// Creates a task that vouches with the key of the operator's trail.
    #[must_use]
    pub fn new(trail: &Trail) -> Self {
        Self {
            trail: trail.clone(),
        }
    }

    /// Vouches for the key of a writer, unless `published` has the statement already; adds it there. Returns whether it
    /// succeeded.
    async fn vouch(
        &self,
        writer: &str,
        public: &str,
        published: &mut BTreeMap<String, String>,
    ) -> bool {
        let key = self.trail.ledger().key().clone();
        let Some((id, vouched)) = key.vouch(writer, public) else {
            tracing::error!(
                writer,
                "failed to read its audit key, so its signatures cannot be verified"
            );
            return true;
        };
        // The entries of the operator have no prefix: no writer can replace the key of another.
        let slot = format!("{writer}.{id}");
        let there = published.get(&slot);
        let there = there.and_then(|text| serde_json::from_str::<Published>(text).ok());
        if there.as_ref() == Some(&vouched) {
            return true;
        }
        let text = serde_json::to_string(&vouched).unwrap_or_default();
        let maps = self.trail.shared.keys.maps();
        match publish_entry(&maps, &slot, text.clone()).await {
            Ok(()) => {
                tracing::info!(writer, key = id, "vouched for an audit key");
                published.insert(slot, text);
                self.trail.key_made(&vouched);
                true
            }
            Err(error) => {
                tracing::warn!(writer, "failed to vouch for its audit key: {error:#}");
                false
            }
        }
    }
}

impl Task for WriterVouching {
    async fn run(&self) {
        let shared = &self.trail.shared;
        let (client, namespace) = (&shared.keys.client, &shared.keys.namespace);
        let writers = OTHER_WRITERS.into_iter().filter_map(|writer| {
            let keys = WriterKeys::new(client, namespace, writer).ok()?;
            let public = keys.public();
            let watch = public.watch();
            Some((writer, public, watch))
        });
        let mut writers: Vec<_> = writers.collect();
        let resource = ApiResource::erase::<ConfigMap>(&());
        let this = Selection::with_name(AUDIT_PUBLIC_KEYS);
        let mut maps = guarded_watch::<ConfigMap>(client, &resource, Some(namespace), this).0;
        let mut keys: BTreeMap<&str, String> = BTreeMap::new();
        // `None` until the published entries are known.
        let mut published: Option<BTreeMap<String, String>> = None;
        let mut failed = false;
        loop {
            let events = writers.iter_mut().map(|(writer, public, watch)| {
                let event = async move { public.said(watch.next(|_| {}).await) };
                Box::pin(async move { (*writer, event.await) })
            });
            tokio::select! {
                ((writer, said), ..) = futures::future::select_all(events) => match said {
                    Some(Ok(Some(public))) => {
                        keys.insert(writer, public.trim().to_owned());
                    }
                    Some(Ok(None)) => {
                        keys.remove(writer);
                    }
                    Some(Err(error)) => tracing::warn!(writer, "its public keys cannot be read: {error:#}"),
                    None => continue,
                },
                event = maps.next(|_| {}) => match event {
                    StoreEvent::Apply(map) | StoreEvent::InitApply(map) => {
                        let told = map.0.ok().and_then(|map| map.data);
                        published = Some(told.into_iter().flatten().collect());
                    }
                    StoreEvent::Delete(_) => published = Some(BTreeMap::new()),
                    StoreEvent::InitDone => {
                        published.get_or_insert_default();
                    }
                    StoreEvent::Init => continue,
                },
                () = shared.key_changed.notified() => {}
                // After a failure, no event may report the key again.
                () = tokio::time::sleep(AGAIN), if failed => {}
            }
            failed = false;
            if let Some(published) = &mut published {
                for (writer, public) in &keys {
                    failed |= !self.vouch(writer, public, published).await;
                }
            }
        }
    }
}
