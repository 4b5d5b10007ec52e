//! The Secrets of credentials. A value is read by `get` of the one Secret at the time of the lend, and no value is
//! cached. Between lends, the broker reads the metadata of the Secrets of held requests, each at most once a second: a
//! Secret that is replaced, deleted or made unreadable has another version within two seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use oz_api::harness::SecretKey;
use oz_runs::lending::{SecretRefusal, value, version};
use oz_runtime::{CallError, within};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::polls::{Polls, SecretName};

/// The time for which a version counts as current, and the time after which the broker looks for versions that do not.
const FRESH: Duration = Duration::from_millis(900);
const EVERY: Duration = Duration::from_millis(500);
/// The maximum number of reads for held requests in [`EVERY`]. Of more Secrets, those that were read the longest time ago
/// come first.
const READS: usize = 125;
/// The maximum number of concurrent reads of metadata, and of values.
const VERSION_TURNS: usize = 16;
const VALUE_TURNS: usize = 8;
/// The time after which an unused version is removed.
const UNUSED: Duration = Duration::from_secs(60);
/// The versions of a Secret that does not exist, and of one that the broker may not read.
const ABSENT: &str = "absent";
const UNREADABLE: &str = "unreadable";

/// The reason for which there is no value.
#[derive(Clone, Debug)]
pub(crate) enum NoValue {
    /// The Secret has none.
    Refused(SecretRefusal),
    /// The API server did not respond.
    Failed(CallError),
}

/// The reads of Secrets.
pub(crate) struct Secrets {
    client: Client,
    versions: Mutex<HashMap<SecretName, SecretVersion>>,
    version_reads: Flights<Option<String>>,
    value_reads: Flights<Result<Arc<Secret>, NoValue>>,
    version_turns: Semaphore,
    value_turns: Semaphore,
}

#[derive(Clone, Debug)]
struct SecretVersion {
    version: String,
    /// The begin of the read.
    began: Instant,
}

impl Secrets {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            versions: Mutex::default(),
            version_reads: Flights::default(),
            value_reads: Flights::default(),
            version_turns: Semaphore::new(VERSION_TURNS),
            value_turns: Semaphore::new(VALUE_TURNS),
        }
    }

    /// Reads a value, with the version of its Secret.
    pub(crate) async fn value(
        &self,
        namespace: &str,
        secret: &SecretKey,
        polls: &Polls,
    ) -> Result<(String, String), NoValue> {
        let key = (namespace.to_owned(), secret.name.clone());
        let began = Instant::now();
        let read = self.value_reads.join(&key, || self.read(&key)).await;
        let found = match read {
            Ok(secret) => secret,
            Err(no_value) => {
                let version = match &no_value {
                    NoValue::Refused(SecretRefusal::SecretNotFound) => Some(ABSENT),
                    NoValue::Refused(SecretRefusal::SecretUnreadable) => Some(UNREADABLE),
                    _ => None,
                };
                if let Some(version) = version {
                    self.learn(&key, version.to_owned(), began, polls);
                }
                return Err(no_value);
            }
        };
        let version = version(&found.metadata);
        self.learn(&key, version.clone(), began, polls);
        let value = value(found.data.as_ref(), &secret.key).map_err(NoValue::Refused)?;
        Ok((value, version))
    }

    async fn read(&self, (namespace, name): &SecretName) -> Result<Arc<Secret>, NoValue> {
        let _turn = self.value_turns.acquire().await;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let what = || format!("failed to read Secret {namespace}/{name}");
        match within(secrets.get(name), what).await {
            Ok(secret) => Ok(Arc::new(secret)),
            Err(error) => Err(match error.reason {
                "NotFound" => NoValue::Refused(SecretRefusal::SecretNotFound),
                "Forbidden" => NoValue::Refused(SecretRefusal::SecretUnreadable),
                _ => NoValue::Failed(error),
            }),
        }
    }

    /// Returns the versions of Secrets by their names. A version is empty if it was never read.
    pub(crate) async fn versions(
        &self,
        namespace: &str,
        names: &BTreeSet<String>,
        polls: &Polls,
    ) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for name in names {
            let key = (namespace.to_owned(), name.clone());
            self.refresh(&key, polls).await;
            let known = self.versions.lock().get(&key).cloned();
            let version = known.map(|known| known.version).unwrap_or_default();
            versions.insert(name.clone(), version);
        }
        versions
    }

    /// Reads the version of a Secret unless it is current.
    async fn refresh(&self, key: &SecretName, polls: &Polls) {
        let began = Instant::now();
        if self.is_fresh(key, began) {
            return;
        }
        let read = self.version_reads.join(key, || self.read_version(key));
        if let Some(version) = read.await {
            self.learn(key, version, began, polls);
        }
    }

    fn is_fresh(&self, key: &SecretName, now: Instant) -> bool {
        let versions = self.versions.lock();
        let known = versions.get(key);
        known.is_some_and(|known| now.duration_since(known.began) < FRESH)
    }

    /// Reads the metadata only, from the cache of the API server: a version requires no value. Returns `None` if the read
    /// failed and may succeed later.
    async fn read_version(&self, (namespace, name): &SecretName) -> Option<String> {
        let _turn = self.version_turns.acquire().await;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let what = || format!("failed to read the metadata of Secret {namespace}/{name}");
        let any_version = GetParams::at("0");
        match within(secrets.get_metadata_with(name, &any_version), what).await {
            Ok(found) => Some(version(&found.metadata)),
            Err(error) => match error.reason {
                "NotFound" => Some(ABSENT.to_owned()),
                "Forbidden" => Some(UNREADABLE.to_owned()),
                _ => {
                    tracing::debug!(%error, "the version of a Secret is unknown");
                    None
                }
            },
        }
    }

    /// Stores a version unless a later read has stored one, and wakes held requests if it is another one.
    fn learn(&self, key: &SecretName, version: String, began: Instant, polls: &Polls) {
        let mut versions = self.versions.lock();
        let before = versions.get(key);
        if before.is_some_and(|before| before.began > began) {
            return;
        }
        let changed = before.is_some_and(|before| before.version != version);
        versions.insert(key.clone(), SecretVersion { version, began });
        drop(versions);
        if changed {
            polls.wake_secret(key);
        }
    }

    /// Reads the versions of the Secrets of held requests until `stop`.
    pub(crate) async fn run(self: Arc<Self>, polls: Arc<Polls>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut reads = JoinSet::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(_) = reads.join_next() => continue,
                () = stop.cancelled() => return,
            }
            if !reads.is_empty() {
                // The API server is slow: no second read of a Secret begins before the first one ends.
                continue;
            }
            for key in self.due(polls.secrets()) {
                let (this, polls) = (Arc::clone(&self), Arc::clone(&polls));
                reads.spawn(async move { this.refresh(&key, &polls).await });
            }
        }
    }

    /// Returns the Secrets to read now, and removes the unused versions.
    fn due(&self, held: BTreeSet<SecretName>) -> Vec<SecretName> {
        let now = Instant::now();
        let mut versions = self.versions.lock();
        versions
            .retain(|key, known| held.contains(key) || now.duration_since(known.began) < UNUSED);
        let mut due: Vec<(Option<Instant>, SecretName)> = held
            .into_iter()
            .map(|key| (versions.get(&key).map(|known| known.began), key))
            .filter(|(began, _)| began.is_none_or(|began| now.duration_since(began) >= FRESH))
            .collect();
        due.sort();
        due.truncate(READS);
        due.into_iter().map(|(_, key)| key).collect()
    }
}

/// Reads under way: concurrent readers of one Secret share one read.
struct Flights<T>(Mutex<HashMap<SecretName, Arc<OnceCell<T>>>>);

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Flights<T> {
    async fn join<F: Future<Output = T>>(&self, key: &SecretName, read: impl FnOnce() -> F) -> T {
        let cell = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        let _landing = Landing {
            flights: self,
            key,
            cell: Arc::clone(&cell),
        };
        cell.get_or_init(read).await.clone()
    }
}

/// Removes a read when it is complete, or when its last reader is dropped.
struct Landing<'a, T> {
    flights: &'a Flights<T>,
    key: &'a SecretName,
    cell: Arc<OnceCell<T>>,
}

impl<T> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        let mut all = self.flights.0.lock();
        let is_this = |cell: &Arc<OnceCell<T>>| Arc::ptr_eq(cell, &self.cell);
        // One reference in the map, one here, and one in the future that is being dropped.
        let is_last = Arc::strong_count(&self.cell) <= 3;
        if all.get(self.key).is_some_and(is_this) && (self.cell.initialized() || is_last) {
            all.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_readers_share_one_read_and_later_readers_read_again() {
        let flights: Flights<usize> = Flights::default();
        let key = ("team".to_owned(), "keys".to_owned());
        let reads = AtomicUsize::new(0);
        let read = async || {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            number
        };
        let both = tokio::join!(flights.join(&key, read), flights.join(&key, read));
        assert_eq!(both, (0, 0));
        assert_eq!(flights.join(&key, read).await, 1);
        assert!(flights.0.lock().is_empty());
        // A reader that is dropped leaves no read behind.
        let never = flights.join(&key, std::future::pending::<usize>);
        let dropped = tokio::time::timeout(Duration::from_millis(1), never).await;
        assert!(dropped.is_err() && flights.0.lock().is_empty());
    }
}
