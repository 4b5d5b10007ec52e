//! What changes of requests, answers, reviews and locks: from a list on by watches, which go on where they broke. What
//! came meanwhile is found by comparing what is there with what was.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use oz_api::{
    AccessLock, AccessRequestApproval, AccessReview, ExecAccessRequest, PodAccessRequest, labels,
};
use oz_core::access::lock;
use oz_core::kinds::AccessRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::{Ask, Retry, user};
use crate::reviews;

/// After a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// What of an object somebody sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Who asked, answered or is reviewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// What it is about.
    pub what: String,
    /// How far it is.
    pub phase: String,
    /// Why, in the words of whoever did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when it holds, or has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Kind of the object.
    pub kind: String,
    /// Its namespace, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How it is now; how it was last, if it is gone.
    #[serde(flatten)]
    pub standing: Standing,
    /// Whether it is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A kind whose changes are shown.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// What of it somebody sees.
    fn standing(&self, now: Timestamp) -> Standing;
}

/// What of a request somebody sees.
fn of_request<R: AccessRequest>(request: &R) -> Standing {
    let status = request.status().cloned().unwrap_or_default();
    let ask = Ask::of(request);
    let ended = status.ending.as_ref().map(|ending| {
        let detail = ending.detail.as_ref().map(|detail| format!(": {detail}"));
        format!("{}{}", ending.reason, detail.unwrap_or_default())
    });
    let emergency = if ask.emergency { ", an emergency" } else { "" };
    Standing {
        who: user(request),
        what: format!("{} by template {}{emergency}", R::PURPOSE, ask.template),
        phase: match &status.approval {
            Some(_) if !status.phase.is_granted() && !status.phase.is_terminal() => {
                "Waiting for approval".to_owned()
            }
            _ => status.phase.to_string(),
        },
        reason: ended.or(ask.reason),
        until: status.expires_at,
    }
}

impl Watched for ExecAccessRequest {
    fn standing(&self, _: Timestamp) -> Standing {
        of_request(self)
    }
}

impl Watched for PodAccessRequest {
    fn standing(&self, _: Timestamp) -> Standing {
        of_request(self)
    }
}

fn annotation<K: Resource>(object: &K, name: &str) -> Option<String> {
    let annotations = object.meta().annotations.as_ref();
    annotations.and_then(|all| all.get(name).cloned())
}

impl Watched for AccessRequestApproval {
    fn standing(&self, _: Timestamp) -> Standing {
        let about = &self.spec.access_request_ref;
        Standing {
            who: annotation(self, labels::REQUESTED_BY),
            what: format!("{} {}", about.kind, about.name),
            phase: if self.spec.approval {
                "Approved"
            } else {
                "Denied"
            }
            .to_owned(),
            reason: self.spec.reason.clone(),
            until: None,
        }
    }
}

impl Watched for AccessReview {
    fn standing(&self, now: Timestamp) -> Standing {
        let spec = &self.spec;
        let open = (!spec.is_written()).then_some(spec.due_at);
        let what = match (
            &spec.break_glass,
            &spec.attestation,
            &spec.access_request_ref,
        ) {
            (Some(_), ..) => "break-glass".to_owned(),
            (_, Some(attestation), _) => format!(
                "entitlements, {} kept, {} removed",
                attestation.kept, attestation.removed
            ),
            (.., Some(about)) => format!("emergency {} {}", about.kind, about.name),
            _ => String::new(),
        };
        let phase = match (spec.finding, &spec.attestation) {
            (Some(finding), _) => finding.to_string(),
            (None, Some(_)) => "Attested".to_owned(),
            (None, None) if reviews::is_overdue(self, now) => "Overdue".to_owned(),
            (None, None) => "Open".to_owned(),
        };
        let written = annotation(self, labels::REVIEWED_BY);
        let asked = Some(spec.requester.user.clone()).filter(|user| !user.is_empty());
        let emergency = Some(spec.emergency.clone()).filter(|reason| !reason.is_empty());
        Standing {
            who: written.or(asked),
            what,
            phase,
            reason: spec.reason.clone().or(emergency),
            until: open,
        }
    }
}

impl Watched for AccessLock {
    fn standing(&self, now: Timestamp) -> Standing {
        Standing {
            who: None,
            what: lock::target(&self.spec.target),
            phase: if lock::holds(self, now) {
                "Locked"
            } else {
                "Over"
            }
            .to_owned(),
            reason: Some(self.spec.reason.clone()),
            until: lock::until(self),
        }
    }
}

/// What is known of one kind, and from where its watch goes on.
pub struct Feed<K> {
    api: Api<K>,
    version: String,
    known: BTreeMap<(Option<String>, String), (Option<String>, Standing)>,
}

/// Why changes are told no longer.
#[derive(Debug)]
pub enum Stop {
    /// Whoever was told wants no more.
    Enough,
    /// Something is wrong that does not pass.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Who is told of a change; `false` is enough.
pub type OnChange<'a> = &'a dyn Fn(Change) -> Result<bool>;

/// Whether changes come.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a> {
    /// No more, for this reason; it is tried over.
    Broken(&'a Failure),
    /// Again.
    Back,
}

/// Who is told of the link of one kind.
pub type OnLink<'a> = &'a dyn Fn(Link<'_>);

/// For how long it is not believed that what was watched may be watched no more, or is no kind: an API server that has
/// just begun does not know yet who may what, on a busy machine not soon, and nobody may have noticed that it was away.
const DISBELIEVED: Duration = Duration::from_mins(1);

/// What of a link is broken at the moment, if anything is.
#[derive(Debug, Default)]
struct Outage {
    retry: Retry,
    refused_since: Option<Instant>,
}

impl Outage {
    /// Rests after a failure that passes; any other stays one.
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
    /// What is there now, of which nothing is told.
    ///
    /// # Errors
    /// When it may not be listed.
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
                Stop::Enough => Failure::new("nobody was told, and it was enough"),
            })?;
        Ok(feed)
    }

    /// Tells of each change, until it is enough. What passes meanwhile, such as an API server that starts anew, ends
    /// nothing.
    ///
    /// # Errors
    /// Always: why it ended.
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
                // As every few minutes, or the connection broke.
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

    /// Tells what one watch brings.
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

    /// Tells how what is there differs from what was.
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
        self.version = list.metadata.resource_version.unwrap_or_default();
        Ok(())
    }

    fn seen(&mut self, object: &K, told: OnChange<'_>) -> Result<(), Stop> {
        let (key, uid) = (key(object), object.uid());
        let standing = object.standing(Timestamp::now());
        // One that was made anew under its name is another.
        let is_other = |known: &(Option<String>, Standing)| known.0 != uid;
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
    standing: Standing,
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
    async fn who_is_refused_what_was_watched_asks_again_for_a_minute() {
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
