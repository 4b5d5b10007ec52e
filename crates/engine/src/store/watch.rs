//! The watches that feed a store: decoded one object at a time, so that one that does not decode
//! stops nothing; repeated with a pause after errors; without managed fields, which nobody reads
//! and which are the larger part of most objects.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DeserializeGuard, DynamicResourceScope};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::Store;
use crate::observe::cluster_scoped;

/// Pauses between attempts at a list or a watch that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long nothing may come of a list that is under way.
const STALLED: Duration = Duration::from_secs(30);

/// An object that is not of the form that its kind prescribes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Undecodable {
    /// What the decoder objected to.
    pub error: String,
    /// The object's metadata.
    pub metadata: ObjectMeta,
}

/// An object of kind `K`, or what could be read of one that does not decode.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

impl<'de, K> Deserialize<'de> for Guarded<K>
where
    K: Resource + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DeserializeGuard(object) = DeserializeGuard::deserialize(deserializer)?;
        Ok(Self(object.map_err(|invalid| Undecodable {
            error: invalid.error,
            metadata: invalid.metadata,
        })))
    }
}

/// Its kind is named at run time, whatever `K` does, so that one code path serves all.
impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(undecodable) => &undecodable.metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(undecodable) => &mut undecodable.metadata,
        }
    }
}

/// Watches a kind, in one namespace or in all. Errors are part of the stream, which goes on after
/// them; whoever reads it should pause.
pub fn guarded_watch<K>(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<Guarded<K>>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<Guarded<K>> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    watcher::watcher(api, config).map(|event| {
        event.map(|event| event.modify(|object| object.meta_mut().managed_fields = None))
    })
}

/// A store of one kind and the future that feeds it, which runs until it is dropped. An object
/// that does not decode is logged and left out.
pub fn guarded_store<K>(
    client: &Client,
    kind: &K::DynamicType,
    namespace: Option<&str>,
    config: watcher::Config,
) -> (Store<K>, impl Future<Output = ()> + Send + use<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let resource = ApiResource::erase::<K>(kind);
    let store = Store::new(resource, cluster_scoped::<K>(), 1, None);
    let feed = Feed {
        client: client.clone(),
        store: store.clone(),
        namespace: namespace.map(ToOwned::to_owned),
        config,
        report: Arc::new(Silent),
    };
    (store, feed.run())
}

/// Hears how a watch fares.
pub(crate) trait Report: Send + Sync + 'static {
    /// The first list is complete, or the watch works again.
    fn listed(&self);
    /// A list or watch failed; `missing` if the API server does not know the kind, `first` if no
    /// list was complete before.
    fn failed(&self, error: &str, missing: bool, first: bool);
    /// How many objects do not decode at present.
    fn undecodable(&self, count: usize);
}

struct Silent;

impl Report for Silent {
    fn listed(&self) {}
    fn failed(&self, _: &str, _: bool, _: bool) {}
    fn undecodable(&self, _: usize) {}
}

/// One watch and the store that it feeds.
pub(crate) struct Feed<K> {
    pub(crate) client: Client,
    pub(crate) store: Store<K>,
    pub(crate) namespace: Option<String>,
    pub(crate) config: watcher::Config,
    pub(crate) report: Arc<dyn Report>,
}

impl<K> Feed<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Feeds the store until dropped.
    pub(crate) async fn run(self) {
        let mut first = true;
        loop {
            self.watch(&mut first).await;
            tracing::warn!(
                kind = self.store.resource().kind,
                namespace = self.namespace,
                "a list stalled and is begun anew"
            );
        }
    }

    /// Watches until a list stalls. `first` is whether no list was complete yet.
    async fn watch(&self, first: &mut bool) {
        let mut stream = std::pin::pin!(guarded_watch::<K>(
            &self.client,
            self.store.resource(),
            self.namespace.as_deref(),
            self.config.clone(),
        ));
        let mut pause = FIRST_PAUSE;
        let mut listing = true;
        loop {
            // A watch may be silent for as long as it likes, a list may not.
            let event = if listing {
                tokio::time::timeout(STALLED, stream.next()).await
            } else {
                Ok(stream.next().await)
            };
            match event {
                Ok(Some(Ok(event))) => {
                    if !matches!(event, Event::Init | Event::InitApply(_)) {
                        pause = FIRST_PAUSE;
                    }
                    listing = matches!(event, Event::Init | Event::InitApply(_));
                    let listed = matches!(event, Event::InitDone);
                    self.take(event);
                    if listed {
                        self.report.listed();
                        if std::mem::take(first) {
                            self.store.listed();
                        }
                    }
                }
                Ok(Some(Err(error))) => {
                    self.failed(&error, *first);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn take(&self, event: Event<Guarded<K>>) {
        let source = &self.namespace;
        let mut cache = self.store.write();
        let undecodable_before = cache.undecodable();
        let changes = match event {
            Event::Init => {
                cache.list_begins(source);
                Vec::new()
            }
            Event::InitDone => cache.list_ends(source, Instant::now()),
            Event::InitApply(Guarded(Ok(object))) | Event::Apply(Guarded(Ok(object))) => {
                cache.seen(source, object)
            }
            Event::InitApply(Guarded(Err(bad))) | Event::Apply(Guarded(Err(bad))) => {
                tracing::warn!(
                    kind = self.store.resource().kind,
                    namespace = bad.metadata.namespace,
                    name = bad.metadata.name,
                    error = bad.error,
                    "left out an object that does not decode"
                );
                cache.seen_undecodable(source, &bad.metadata);
                Vec::new()
            }
            Event::Delete(object) => cache
                .deleted(object.meta(), Instant::now())
                .into_iter()
                .collect(),
        };
        let undecodable = cache.undecodable();
        drop(cache);
        if undecodable != undecodable_before {
            self.report.undecodable(undecodable);
        }
        self.store.publish(&changes, None);
    }

    fn failed(&self, error: &watcher::Error, first: bool) {
        let missing = matches!(
            error,
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
        );
        self.report.failed(&error.to_string(), missing, first);
        tracing::debug!(
            kind = self.store.resource().kind,
            namespace = self.namespace,
            %error,
            "a watch failed and is tried again"
        );
    }
}
