//! Audit records as they are written.

use futures::{Stream, TryStreamExt};
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use oz_trail::{Entry, Query};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::Retry;
use crate::trail::events;

/// The audit records that match a query and follow an instant.
pub struct Tail<'a> {
    cluster: &'a Cluster,
    query: &'a Query,
    events: Api<DynamicObject>,
    /// The version from which the next watch continues.
    version: String,
}

/// An event of following the audit trail.
pub enum Tailed<'a> {
    /// An audit record was written.
    Record(&'a Entry),
    /// The API server does not answer at the moment, and is asked again.
    Interrupted(&'a Failure),
    /// The API server responds again.
    Resumed,
}

/// The reason for the end of a watch.
enum Followed {
    /// The API server ended it, as it does every few minutes, or the connection broke.
    Broken,
    /// The caller wants no more.
    Enough,
}

impl<'a> Tail<'a> {
    /// Begins now.
    ///
    /// # Errors
    /// The audit records cannot be read.
    pub async fn begin(cluster: &'a Cluster, query: &'a Query) -> Result<Self> {
        let events = events(cluster);
        let one = ListParams::default().limit(1);
        let list = cluster.answer(events.list(&one)).await?;
        Ok(Self {
            cluster,
            query,
            events,
            version: version_of(list.metadata.resource_version)?,
        })
    }

    /// Passes each event to `each`, until it returns false.
    ///
    /// # Errors
    /// The audit records may not be watched, or the failure is permanent.
    pub async fn follow(mut self, mut each: impl FnMut(Tailed<'_>) -> Result<bool>) -> Result<()> {
        let parameters = WatchParams::default().labels(&self.query.selector());
        let mut retry = Retry::default();
        loop {
            let watch = self.events.watch(&parameters, &self.version);
            let followed = match self.cluster.answer(watch).await {
                Ok(stream) => {
                    if retry.has_failed() && !each(Tailed::Resumed)? {
                        return Ok(());
                    }
                    retry.over();
                    self.watched(stream, &mut each).await
                }
                Err(failure) => Err(failure),
            };
            match followed {
                Ok(Followed::Broken) => {}
                Ok(Followed::Enough) => return Ok(()),
                // The API server no longer has the changes since then, such as after a restart.
                Err(failure) if failure.is_gone() => match self.missed(&mut each).await {
                    Ok(Followed::Broken) => {}
                    Ok(Followed::Enough) => return Ok(()),
                    Err(failure) => retry.with(failure).await?,
                },
                Err(failure) => {
                    let is_first = failure.passes() && !retry.has_failed();
                    if is_first && !each(Tailed::Interrupted(&failure))? {
                        return Ok(());
                    }
                    retry.with(failure).await?;
                }
            }
        }
    }

    /// Passes on the audit records of one watch.
    async fn watched(
        &mut self,
        stream: impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>>,
        each: &mut impl FnMut(Tailed<'_>) -> Result<bool>,
    ) -> Result<Followed> {
        let mut stream = std::pin::pin!(stream);
        // After a broken connection, the next watch returns the missing events, or the error.
        while let Ok(Some(event)) = stream.try_next().await {
            match event {
                WatchEvent::Added(event) => {
                    if !self.pass_on(&event, each)? {
                        return Ok(Followed::Enough);
                    }
                    if let Some(version) = event.metadata.resource_version {
                        self.version = version;
                    }
                }
                WatchEvent::Bookmark(mark) => self.version = mark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
                WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {}
            }
        }
        Ok(Followed::Broken)
    }

    /// Passes on the audit records that a watch no longer returns. Records never change, so the version of each is that
    /// of its creation.
    async fn missed(
        &mut self,
        each: &mut impl FnMut(Tailed<'_>) -> Result<bool>,
    ) -> Result<Followed> {
        let parameters = ListParams::default().labels(&self.query.selector());
        let list = self.cluster.answer(self.events.list(&parameters)).await?;
        let version = |event: &DynamicObject| {
            let version = event.metadata.resource_version.as_deref();
            version.and_then(|version| version.parse::<u64>().ok())
        };
        let last = self.version.parse::<u64>().ok();
        let mut since: Vec<_> = list
            .items
            .into_iter()
            .filter(|one| version(one) > last)
            .collect();
        since.sort_by_key(version);
        for event in since {
            if !self.pass_on(&event, each)? {
                return Ok(Followed::Enough);
            }
        }
        self.version = version_of(list.metadata.resource_version)?;
        Ok(Followed::Broken)
    }

    /// Passes on an audit record, if it matches the query. Returns whether the caller wants more.
    fn pass_on(
        &self,
        event: &DynamicObject,
        each: &mut impl FnMut(Tailed<'_>) -> Result<bool>,
    ) -> Result<bool> {
        match serde_json::from_value::<Entry>(event.data["spec"].clone()) {
            Ok(entry) if self.query.matches(&entry) => each(Tailed::Record(&entry)),
            _ => Ok(true),
        }
    }
}

fn version_of(version: Option<String>) -> Result<String> {
    version.ok_or_else(|| {
        Failure::new("failed to follow AuditEvents: the API server's list has no resourceVersion")
    })
}
