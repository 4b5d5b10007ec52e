//! The conversion of the events of a watch, which repeat after each restart, into events that each report a
//! change. Pure.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt};
use oz_runtime::{Guarded, StoreEvent as Event};

use crate::watch::{Replay, WatchEvent};

/// The last reported state of each object, by UID.
pub(crate) struct Changes<K> {
    known: BTreeMap<String, CachedObject<K>>,
    /// The objects of a list that is still incomplete.
    listing: Option<Vec<String>>,
    /// The replay of the objects of the first list.
    replay: Replay,
}

struct CachedObject<K> {
    resource_version: Option<String>,
    object: K,
}

impl<K: Resource + Clone> Changes<K> {
    pub(crate) fn new(replay: Replay) -> Self {
        Self {
            known: BTreeMap::new(),
            listing: None,
            replay,
        }
    }

    /// Returns the changes in `event`.
    pub(crate) fn absorb(&mut self, event: Event<Guarded<K>>) -> Vec<WatchEvent<K>> {
        match event {
            Event::Init => {
                self.listing = Some(Vec::new());
                Vec::new()
            }
            Event::InitApply(guard) => {
                let uid = guard.metadata().uid.clone();
                let news = self.changed(guard);
                if let (Some(listing), Some(uid)) = (&mut self.listing, uid) {
                    listing.push(uid);
                }
                news.filter(|news| self.is_replayed(news.object()))
                    .into_iter()
                    .collect()
            }
            Event::InitDone => self.listed(),
            Event::Apply(guard) => self.changed(guard).into_iter().collect(),
            Event::Delete(guard) => self.deleted(guard).into_iter().collect(),
        }
    }

    fn is_replayed(&self, object: &K) -> bool {
        match &self.replay {
            Replay::FromNow => false,
            Replay::Existing => true,
            Replay::Since(version) => {
                // Versions are increasing numbers; if one is not a number, an event too many is better than
                // a missing one.
                let number = |version: &str| version.parse::<u128>().ok();
                let of_object = object.resource_version();
                match (of_object.as_deref().and_then(number), number(version)) {
                    (Some(object), Some(since)) => object > since,
                    _ => true,
                }
            }
        }
    }

    fn changed(&mut self, guard: Guarded<K>) -> Option<WatchEvent<K>> {
        let object = decoded(guard)?;
        let uid = object.uid()?;
        let resource_version = object.resource_version();
        let now = CachedObject {
            resource_version: resource_version.clone(),
            object: object.clone(),
        };
        match self.known.insert(uid, now) {
            None => Some(WatchEvent::Added(object)),
            Some(before) if before.resource_version == resource_version => None,
            Some(_) => Some(WatchEvent::Modified(object)),
        }
    }

    fn deleted(&mut self, guard: Guarded<K>) -> Option<WatchEvent<K>> {
        let known = self.known.remove(guard.metadata().uid.as_ref()?)?;
        // The event has the newest state; for a broken object, the last valid state is reported.
        Some(WatchEvent::Deleted(guard.0.unwrap_or(known.object)))
    }

    /// Handles the end of a list: objects that it does not contain were deleted.
    fn listed(&mut self) -> Vec<WatchEvent<K>> {
        self.replay = Replay::Existing;
        let Some(mut listed) = self.listing.take() else {
            return Vec::new();
        };
        listed.sort();
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|uid| listed.binary_search(uid).is_err())
            .cloned()
            .collect();
        gone.into_iter()
            .filter_map(|uid| self.known.remove(&uid))
            .map(|known| WatchEvent::Deleted(known.object))
            .collect()
    }
}

/// Returns the object. An object that does not decode must not stop the watch for all others.
fn decoded<K>(guard: Guarded<K>) -> Option<K> {
    match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (name, error) = (&invalid.metadata.name, &invalid.error);
            tracing::warn!(?name, %error, "skipped an object that does not decode");
            None
        }
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
