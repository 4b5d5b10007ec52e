//! The watches that feed a store: one object at a time, so that one that does not decode stops
//! nothing and is waited for by nobody; repeated with a pause after errors.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::source::{Selection, Watch, WatchError};
use super::{Health, Store, cluster_scoped};
use crate::raw::Undecodable;

/// Pauses between attempts at a list or a watch that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An object of kind `K`, or what could be read of one that does not decode.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

impl<K: Resource> Guarded<K> {
    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(undecodable) => &undecodable.metadata,
        }
    }
}

/// Watches a kind, in one namespace or in all, and says how that goes.
pub fn guarded_watch<K>(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    selection: Selection,
) -> (Watch<K>, Health)
where
    K: Resource + DeserializeOwned,
{
    let title = title(resource, &selection, namespace);
    let health = Health::new(format!("the watch of {title}"), &resource.kind);
    let watch = Watch::new(client, resource, namespace, selection, health.clone());
    (watch, health)
}

/// What is watched, for people.
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

/// A store of one kind, how its watch fares, and the future that feeds it, which runs until it is
/// dropped. An object that does not decode is logged and counts as gone.
pub fn guarded_store<K>(
    client: &Client,
    kind: &K::DynamicType,
    namespace: Option<&str>,
    selection: Selection,
) -> (Store<K>, Health, impl Future<Output = ()> + Send + use<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let resource = ApiResource::erase::<K>(kind);
    let store = Store::new(resource.clone(), cluster_scoped::<K>(), 1, None);
    let (watch, health) = guarded_watch(client, &resource, namespace, selection);
    let feed = Feed {
        watch,
        health: health.clone(),
        store: store.clone(),
        namespace: namespace.map(ToOwned::to_owned),
        report: Arc::new(Silent),
        stand_in: None,
    };
    (store, health, feed.run())
}

/// Hears how a watch fares.
pub(crate) trait Report: Send + Sync + 'static {
    /// A list is complete.
    fn listed(&self);
    /// A list or watch failed; `first` if no list was complete before.
    fn failed(&self, error: &WatchError, first: bool);
    /// How many objects do not decode at present.
    fn undecodable(&self, count: usize);
    /// This one does not, and did before or was not known.
    fn became_undecodable(&self, object: &Undecodable);
}

struct Silent;

impl Report for Silent {
    fn listed(&self) {}
    fn failed(&self, _: &WatchError, _: bool) {}
    fn undecodable(&self, _: usize) {}
    fn became_undecodable(&self, _: &Undecodable) {}
}

/// One watch and the store that it feeds.
pub(crate) struct Feed<K> {
    pub(crate) watch: Watch<K>,
    pub(crate) health: Health,
    pub(crate) store: Store<K>,
    pub(crate) namespace: Option<String>,
    pub(crate) report: Arc<dyn Report>,
    /// What is kept in place of an object that does not decode; nothing if there is none.
    pub(crate) stand_in: Option<fn(ObjectMeta) -> K>,
}

impl<K> Feed<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Feeds the store until dropped.
    pub(crate) async fn run(mut self) {
        let mut first = true;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.watch.next().await {
                Ok(event) => {
                    if !matches!(event, Event::Init | Event::InitApply(_)) {
                        pause = FIRST_PAUSE;
                    }
                    let listed = matches!(event, Event::InitDone);
                    self.take(event);
                    if listed {
                        self.report.listed();
                        if std::mem::take(&mut first) {
                            self.store.listed();
                        }
                    }
                }
                Err(error) => {
                    self.report.failed(&error, first);
                    tracing::debug!(
                        kind = self.store.resource().kind,
                        namespace = self.namespace,
                        %error,
                        "a watch failed and is tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn take(&self, event: Event<Guarded<K>>) {
        let source = &self.namespace;
        let now = Instant::now();
        let mut cache = self.store.write();
        let undecodable_before = cache.undecodable();
        let changes = match event {
            Event::Init => {
                cache.list_begins(source);
                Vec::new()
            }
            Event::InitDone => cache.list_ends(source, now),
            Event::InitApply(Guarded(Ok(object))) | Event::Apply(Guarded(Ok(object))) => {
                cache.seen(source, object)
            }
            Event::InitApply(Guarded(Err(bad))) | Event::Apply(Guarded(Err(bad))) => {
                let stand_in = self
                    .stand_in
                    .map(|stand_in| stand_in((*bad.metadata).clone()));
                let (new, changes) = cache.seen_undecodable(source, &bad.metadata, stand_in);
                if new {
                    self.became_undecodable(&bad);
                }
                changes
            }
            Event::Delete(object) => cache.deleted(object.metadata(), now).into_iter().collect(),
        };
        let undecodable = cache.undecodable();
        drop(cache);
        if undecodable != undecodable_before {
            self.health.undecodable(undecodable);
            self.report.undecodable(undecodable);
        }
        self.store.publish(&changes, None);
    }

    fn became_undecodable(&self, bad: &Undecodable) {
        tracing::warn!(
            kind = self.store.resource().kind,
            namespace = bad.metadata.namespace,
            name = bad.metadata.name,
            error = bad.error,
            "an object cannot be read and counts as gone"
        );
        self.report.became_undecodable(bad);
    }
}
