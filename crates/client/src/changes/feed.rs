//! The changes of the objects of one kind.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use tokio::time::Instant;

use super::{Change, ObjectSummary, Watched};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::Retry;

/// The pause after a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// The known objects of one kind, and the version from which the watch resumes.
pub struct Feed<K> {
    api: Api<K>,
    version: String,
    known: BTreeMap<(Option<String>, String), (Option<String>, ObjectSummary)>,
}

/// The reason why a feed ended.
#[derive(Debug)]
pub enum Stop {
    /// The receiver wants no more changes.
    Enough,
    /// A permanent failure.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The receiver of changes; it returns `false` if it wants no more.
pub type OnChange<'a> = &'a dyn Fn(Change) -> Result<bool>;

/// The state of a watch.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a> {
    /// The watch broke, for this reason; it is retried.
    Broken(&'a Failure),
    /// The watch works again.
    Back,
}

/// The receiver of the state of the watch of one kind.
pub type OnLink<'a> = &'a dyn Fn(Link<'_>);

/// The time for which a refusal to watch, or an unknown kind, is not believed after the watch worked: an API server
/// that has just started does not know the permissions yet, and on a busy machine this takes time; the client may not
/// have noticed that the API server was unavailable.
const DISBELIEVED: Duration = Duration::from_mins(1);

/// The current outage of a watch, if there is one.
#[derive(Debug, Default)]
struct Outage {
    retry: Retry,
    refused_since: Option<Instant>,
}

impl Outage {
    /// Pauses after a transient failure; returns any other failure.
    async fn with(&mut self, failure: Failure, link: OnLink<'_>) -> Result<()> {
        let is_new = !self.retry.has_failed();
        let is_refused = failure.is_forbidden() || failure.is_unknown_kind();
        let failure = if is_refused {
            let since = self.refused_since.get_or_insert_with(Instant::now);
            match since.elapsed() < DISBELIEVED {
                true => failure.passing(),
                false => failure,
            }
        } else {
            failure
        };
        if is_new && failure.passes() {
            link(Link::Broken(&failure));
        }
        self.retry.with(failure).await
    }

    fn over(&mut self, link: OnLink<'_>) {
        if self.retry.has_failed() {
            link(Link::Back);
        }
        *self = Self::default();
    }
}

impl<K: Watched> Feed<K> {
    /// Lists the current objects, without reporting them.
    ///
    /// # Errors
    /// The objects may not be listed.
    pub async fn begin(cluster: &Cluster, api: Api<K>) -> Result<Self> {
        let mut feed = Self {
            api,
            version: String::new(),
            known: BTreeMap::new(),
        };
        feed.catch_up(cluster, &|_| Ok(true))
            .await
            .map_err(|stop| match stop {
                Stop::Failed(failure) => failure,
                Stop::Enough => Failure::new("the feed stopped without a receiver"),
            })?;
        Ok(feed)
    }

    /// Reports each change, until the receiver wants no more. A transient failure, such as a restart of the API
    /// server, does not end it.
    ///
    /// # Errors
    /// Always: the reason for the end.
    pub async fn follow(
        mut self,
        cluster: &Cluster,
        told: OnChange<'_>,
        link: OnLink<'_>,
    ) -> Result<(), Stop> {
        let parameters = WatchParams::default();
        let mut outage = Outage::default();
        loop {
            let api = self.api.clone();
            let followed = match cluster.answer(api.watch(&parameters, &self.version)).await {
                Ok(events) => {
                    outage.over(link);
                    self.events(events, told).await
                }
                Err(failure) => Err(failure.into()),
            };
            match followed {
                // This happens every few minutes, or when the connection breaks.
                Ok(()) => tokio::time::sleep(WATCH_AGAIN).await,
                Err(Stop::Failed(failure)) if failure.is_gone() => {
                    match self.catch_up(cluster, told).await {
                        Err(Stop::Failed(failure)) => outage.with(failure, link).await?,
                        caught_up => caught_up?,
                    }
                }
                Err(Stop::Failed(failure)) => outage.with(failure, link).await?,
                Err(enough) => return Err(enough),
            }
        }
    }

    /// Reports the changes from one watch.
    async fn events(
        &mut self,
        events: impl Stream<Item = kube::Result<WatchEvent<K>>>,
        told: OnChange<'_>,
    ) -> Result<(), Stop> {
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let object = match &event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => object,
                WatchEvent::Bookmark(mark) => {
                    self.version.clone_from(&mark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(Failure::from(kube::Error::Api(status.clone())).into());
                }
            };
            match matches!(event, WatchEvent::Deleted(_)) {
                true => self.gone(&key(object), told)?,
                false => self.seen(object, told)?,
            }
            if let Some(version) = object.resource_version() {
                self.version = version;
            }
        }
        Ok(())
    }

    /// Reports the differences between the current and the known objects.
    async fn catch_up(&mut self, cluster: &Cluster, told: OnChange<'_>) -> Result<(), Stop> {
        let api = self.api.clone();
        let list = cluster.answer(api.list(&ListParams::default())).await?;
        let there: Vec<_> = list.items.iter().map(key).collect();
        let gone = self.known.keys().filter(|key| !there.contains(key));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.gone(&key, told)?;
        }
        for object in &list.items {
            self.seen(object, told)?;
        }
        if let Some(version) = list.metadata.resource_version {
            self.version = version;
        }
        Ok(())
    }

    fn seen(&mut self, object: &K, told: OnChange<'_>) -> Result<(), Stop> {
        let (key, uid) = (key(object), object.uid());
        let standing = object.standing(Timestamp::now());
        // An object that was created again under its name is a different object.
        let is_other = |known: &(Option<String>, ObjectSummary)| known.0 != uid;
        if self.known.get(&key).is_some_and(is_other) {
            self.gone(&key, told)?;
        }
        if self
            .known
            .get(&key)
            .is_some_and(|known| known.1 == standing)
        {
            return Ok(());
        }
        self.known.insert(key.clone(), (uid, standing.clone()));
        tell::<K>(key, standing, false, told)
    }

    fn gone(&mut self, key: &(Option<String>, String), told: OnChange<'_>) -> Result<(), Stop> {
        match self.known.remove(key) {
            Some((_, standing)) => tell::<K>(key.clone(), standing, true, told),
            None => Ok(()),
        }
    }
}

fn key<K: Resource>(object: &K) -> (Option<String>, String) {
    (object.namespace(), object.name_any())
}

fn tell<K: Watched>(
    (namespace, name): (Option<String>, String),
    standing: ObjectSummary,
    deleted: bool,
    told: OnChange<'_>,
) -> Result<(), Stop> {
    let change = Change {
        kind: K::kind(&()).into_owned(),
        namespace,
        name,
        standing,
        deleted,
    };
    match told(change)? {
        true => Ok(()),
        false => Err(Stop::Enough),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, reason: &str) -> Failure {
        let status = serde_json::json!({
            "status": "Failure", "message": "not yet", "reason": reason, "code": code,
        });
        let status = serde_json::from_value(status).unwrap();
        Failure::from(kube::Error::Api(Box::new(status)))
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_becomes_forbidden_is_retried_for_one_minute() {
        let link = |_: Link<'_>| {};
        let mut outage = Outage::default();
        let began = Instant::now();
        while outage.with(answered(403, "Forbidden"), &link).await.is_ok() {}
        let took = began.elapsed();
        assert!(took >= DISBELIEVED && took < 2 * DISBELIEVED, "{took:?}");

        outage.over(&link);
        let other = outage.with(answered(400, "BadRequest"), &link).await;
        assert!(other.is_err());
    }
}
