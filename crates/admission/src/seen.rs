//! From the events of a watch, which repeats itself whenever it starts over, to events
//! that each tell something new. Pure.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt, core::DeserializeGuard, runtime::watcher::Event};

use crate::watch::{Replay, WatchEvent};

/// What has been told of each object, by UID.
pub(crate) struct Seen<K> {
    told: BTreeMap<String, Told<K>>,
    /// The objects of a list that is still coming in.
    listing: Option<Vec<String>>,
    /// Whether what a list shows for the first time is to be kept quiet.
    silent: bool,
}

struct Told<K> {
    resource_version: Option<String>,
    object: K,
}

impl<K: Resource + Clone> Seen<K> {
    pub(crate) fn new(replay: Replay) -> Self {
        Self {
            told: BTreeMap::new(),
            listing: None,
            silent: replay == Replay::FromNow,
        }
    }

    /// What is new in `event`.
    pub(crate) fn absorb(&mut self, event: Event<DeserializeGuard<K>>) -> Vec<WatchEvent<K>> {
        match event {
            Event::Init => {
                self.listing = Some(Vec::new());
                Vec::new()
            }
            Event::InitApply(guard) => {
                let uid = guard.uid();
                let news = self.changed(guard);
                if let (Some(listing), Some(uid)) = (&mut self.listing, uid) {
                    listing.push(uid);
                }
                news.filter(|_| !self.silent).into_iter().collect()
            }
            Event::InitDone => self.listed(),
            Event::Apply(guard) => self.changed(guard).into_iter().collect(),
            Event::Delete(guard) => self.deleted(guard).into_iter().collect(),
        }
    }

    fn changed(&mut self, guard: DeserializeGuard<K>) -> Option<WatchEvent<K>> {
        let object = decoded(guard)?;
        let uid = object.uid().unwrap_or_default();
        let resource_version = object.resource_version();
        let told = Told {
            resource_version: resource_version.clone(),
            object: object.clone(),
        };
        match self.told.insert(uid, told) {
            None => Some(WatchEvent::Added(object)),
            Some(before) if before.resource_version == resource_version => None,
            Some(_) => Some(WatchEvent::Modified(object)),
        }
    }

    fn deleted(&mut self, guard: DeserializeGuard<K>) -> Option<WatchEvent<K>> {
        let known = self.told.remove(&guard.uid().unwrap_or_default())?;
        // The event has the newest state; but a broken object is told of by its last good one.
        Some(WatchEvent::Deleted(guard.0.unwrap_or(known.object)))
    }

    /// After a list: whatever it did not show has gone meanwhile.
    fn listed(&mut self) -> Vec<WatchEvent<K>> {
        self.silent = false;
        let Some(mut listed) = self.listing.take() else {
            return Vec::new();
        };
        listed.sort();
        let gone: Vec<_> = self
            .told
            .keys()
            .filter(|uid| listed.binary_search(uid).is_err())
            .cloned()
            .collect();
        gone.into_iter()
            .filter_map(|uid| self.told.remove(&uid))
            .map(|told| WatchEvent::Deleted(told.object))
            .collect()
    }
}

/// One object that does not decode must not stop the watch for all others.
fn decoded<K>(guard: DeserializeGuard<K>) -> Option<K> {
    match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (name, error) = (&invalid.metadata.name, &invalid.error);
            tracing::warn!(?name, %error, "left out an object that does not decode");
            None
        }
    }
}

#[cfg(test)]
#[path = "seen_tests.rs"]
mod tests;
