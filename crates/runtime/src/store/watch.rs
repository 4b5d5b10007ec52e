//! The watches that feed a store: they decode one object at a time, so that one that does not
//! decode stops nothing and delays no caller, and they retry with a pause after errors.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::source::{Selection, Watch, WatchError};
use super::{Health, Store, WeakStore};
use crate::keep::Keep;
use crate::kind::Kind;
use crate::raw::{RawObject, Undecodable, Unreadable, decode};

/// The pauses between attempts at a list or a watch that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The result of decoding an object of kind `K`: the object, or the readable parts of one that does
/// not decode.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

impl<K: Resource + DeserializeOwned> Guarded<K> {
    /// Decodes an object. One without a name or a UID counts as one that does not decode.
    pub(crate) fn decode(object: &RawObject) -> Self {
        Self(decode::<K>(object).and_then(identified))
    }
}

/// Checks that an object has a name and a UID, without which the API server stores no object.
fn identified<K: Resource>(object: K) -> Result<K, Undecodable> {
    let metadata = object.meta();
    let is_missing = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let missing = [("name", &metadata.name), ("uid", &metadata.uid)];
    let missing = missing.into_iter().find(|(_, text)| is_missing(text));
    match missing {
        None => Ok(object),
        Some((field, _)) => Err(Undecodable {
            error: Unreadable::Unidentified { field }.to_string(),
            metadata: Box::new(metadata.clone()),
        }),
    }
}

impl<K: Resource> Guarded<K> {
    /// Returns the metadata of the object.
    pub fn metadata(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(undecodable) => &undecodable.metadata,
        }
    }
}

/// An event of a watch for a store.
#[derive(Clone, Debug)]
pub enum StoreEvent<T> {
    /// A list begins; its objects follow.
    Init,
    /// An object of the list.
    InitApply(T),
    /// The list is complete: known objects that are not in it are deleted.
    InitDone,
    /// An object is new or has changed.
    Apply(T),
    /// An object is deleted.
    Delete(T),
}

/// Watches a kind, in one namespace or in all. Returns the watch and its state.
pub fn guarded_watch<K>(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    selection: Selection,
) -> (Retried<K>, Health)
where
    K: Resource + DeserializeOwned,
{
    let title = title(resource, &selection, namespace);
    let health = Health::new(format!("the watch of {title}"), &resource.kind);
    let watch = Watch::new(client, resource, namespace, selection, health.clone());
    (Retried::new(watch), health)
}

/// Returns the title of a watch, for users.
pub(crate) fn title(
    resource: &ApiResource,
    selection: &Selection,
    namespace: Option<&str>,
) -> Cow<'static, str> {
    let mut title = resource.kind.clone();
    if let Some(selector) = selection.selector() {
        title.push_str(&format!(" ({selector})"));
    }
    if let Some(namespace) = namespace {
        title.push_str(" in ");
        title.push_str(namespace);
    }
    title.into()
}

/// Returns a store of one kind, the state of its watch, and the future that feeds it, which runs
/// until it is dropped, regardless of references to the store. An object that does not decode is
/// logged and counts as deleted.
pub fn guarded_store<K>(
    client: &Client,
    namespace: Option<&str>,
    selection: Selection,
) -> (Store<K>, Health, impl Future<Output = ()> + Send + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let Kind {
        resource,
        cluster_scoped,
    } = Kind::from_type::<K>();
    let ended = CancellationToken::new();
    let store = Store::new(
        resource.clone(),
        cluster_scoped,
        1,
        &Keep::default(),
        ended.clone(),
    );
    let (watch, health) = guarded_watch(client, &resource, namespace, selection);
    let feed = Feed {
        watch,
        health: health.clone(),
        store: store.downgrade(),
        ended,
        namespace: namespace.map(ToOwned::to_owned),
        report: Arc::new(Silent),
        stand_in: None,
    };
    let kept = store.clone();
    let feed = async move {
        feed.run().await;
        drop(kept);
    };
    (store, health, feed)
}

/// A watch that retries after errors, with growing pauses.
pub struct Retried<K> {
    watch: Watch<K>,
    pause: Duration,
}

impl<K: Resource + DeserializeOwned> Retried<K> {
    pub(crate) fn new(watch: Watch<K>) -> Self {
        let pause = FIRST_PAUSE;
        Self { watch, pause }
    }

    /// Starts again with a list.
    pub fn begin_again(&mut self) {
        self.watch.begin_again();
    }

    /// Returns the next event after any number of failures; a caller may drop the future and call this
    /// again. Calls `failed` for each error.
    pub async fn next(&mut self, mut failed: impl FnMut(&WatchError)) -> StoreEvent<Guarded<K>> {
        loop {
            match self.watch.next().await {
                Ok(event) => {
                    if !matches!(event, StoreEvent::Init | StoreEvent::InitApply(_)) {
                        self.pause = FIRST_PAUSE;
                    }
                    return event;
                }
                Err(error) => {
                    tracing::debug!(
                        watch = ?self.watch.health(),
                        %error,
                        "a watch failed and is retried"
                    );
                    failed(&error);
                    let pause = self.pause;
                    self.pause = (pause * 2).min(LONGEST_PAUSE);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// The receiver of the reports of a watch.
pub(crate) trait Report: Send + Sync + 'static {
    /// Reports that a list is complete.
    fn listed(&self);
    /// Reports that a list or watch failed; `first` if no list was complete before.
    fn failed(&self, error: &WatchError, first: bool);
    /// Reports the number of objects that do not decode at present.
    fn undecodable(&self, count: usize);
    /// Reports an object that does not decode, and that decoded before or was not known.
    fn became_undecodable(&self, object: &Undecodable);
}

struct Silent;

impl Report for Silent {
    fn listed(&self) {}
    fn failed(&self, _: &WatchError, _: bool) {}
    fn undecodable(&self, _: usize) {}
    fn became_undecodable(&self, _: &Undecodable) {}
}

/// A watch and the store that it feeds.
pub(crate) struct Feed<K> {
    pub(crate) watch: Retried<K>,
    pub(crate) health: Health,
    pub(crate) store: WeakStore<K>,
    /// Cancelled when the last reference to the store is dropped.
    pub(crate) ended: CancellationToken,
    pub(crate) namespace: Option<String>,
    pub(crate) report: Arc<dyn Report>,
    /// Creates the object to store for an object that does not decode; if `None`, such an object is
    /// not stored.
    pub(crate) stand_in: Option<fn(ObjectMeta) -> K>,
}

impl<K> Feed<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Feeds the store until this is dropped, or until the last reference to the store is dropped.
    pub(crate) async fn run(self) {
        let ended = self.ended.clone();
        ended.run_until_cancelled(self.feed()).await;
    }

    async fn feed(mut self) {
        let mut first = true;
        loop {
            let report = &self.report;
            let event = self.watch.next(|error| report.failed(error, first)).await;
            let Some(store) = self.store.upgrade() else {
                return;
            };
            let listed = matches!(event, StoreEvent::InitDone);
            self.take(&store, event);
            if listed {
                self.report.listed();
                if std::mem::take(&mut first) {
                    store.listed();
                }
            }
        }
    }

    fn take(&self, store: &Store<K>, event: StoreEvent<Guarded<K>>) {
        let source = &self.namespace;
        let now = Instant::now();
        let mut cache = store.write();
        let undecodable_before = cache.undecodable();
        let changes = match event {
            StoreEvent::Init => {
                cache.list_begins(source);
                Vec::new()
            }
            StoreEvent::InitDone => cache.list_ends(source, now),
            StoreEvent::InitApply(Guarded(Ok(object))) | StoreEvent::Apply(Guarded(Ok(object))) => {
                cache.seen(source, object)
            }
            StoreEvent::InitApply(Guarded(Err(bad))) | StoreEvent::Apply(Guarded(Err(bad))) => {
                let stand_in = self
                    .stand_in
                    .map(|stand_in| stand_in((*bad.metadata).clone()));
                let (new, changes) = cache.seen_undecodable(source, &bad.metadata, stand_in);
                if new {
                    self.became_undecodable(&bad);
                }
                changes
            }
            StoreEvent::Delete(object) => {
                cache.deleted(object.metadata(), now).into_iter().collect()
            }
        };
        let undecodable = cache.undecodable();
        drop(cache);
        if undecodable != undecodable_before {
            self.health.undecodable(undecodable);
            self.report.undecodable(undecodable);
        }
        store.publish(&changes, None);
    }

    fn became_undecodable(&self, bad: &Undecodable) {
        tracing::warn!(
            watch = ?self.health,
            namespace = bad.metadata.namespace,
            name = bad.metadata.name,
            error = bad.error,
            "an object cannot be read and is treated as deleted"
        );
        self.report.became_undecodable(bad);
    }
}
