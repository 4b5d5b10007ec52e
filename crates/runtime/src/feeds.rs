//! The watches of one process: what they feed, and what is to be said about them in probes and
//! metrics.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use kube::runtime::events::{Event, EventType};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::raw::Undecodable;
use crate::readiness::{Gate, Readiness};
use crate::store::{Ages, Feed, Report, Selection, Store, WatchError, guarded_watch, title};

/// Watches that are to run, and what the next ones need.
pub struct Feeds {
    /// Who cannot read an object, in what is said about it.
    product: Arc<str>,
    client: Client,
    metrics: Metrics,
    readiness: Readiness,
    /// How the watches fare.
    pub ages: Ages,
    /// Where events go, once the watches run.
    events: Arc<OnceLock<Events>>,
    /// Namespaces to watch; all if empty.
    pub namespaces: Vec<String>,
    /// One future per watch.
    running: Vec<BoxFuture<'static, ()>>,
}

impl Feeds {
    /// None yet.
    pub fn new(product: &str, client: Client, metrics: Metrics, readiness: Readiness) -> Self {
        Self {
            product: product.into(),
            client,
            metrics,
            readiness,
            ages: Ages::default(),
            events: Arc::default(),
            namespaces: Vec::new(),
            running: Vec::new(),
        }
    }

    /// Begins to watch; what does not decode is told of as an event on it.
    pub fn start(self, events: &Events) -> JoinSet<()> {
        let _ = self.events.set(events.clone());
        self.running.into_iter().collect()
    }

    /// A store and the watches that feed it, which begin with [`Feeds::start`].
    pub fn store<K>(
        &mut self,
        resource: ApiResource,
        cluster_scoped: bool,
        selection: Selection,
        group_of: Option<fn(&K) -> Option<&str>>,
        stand_in: Option<fn(ObjectMeta) -> K>,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let namespaces: Vec<Option<String>> = if cluster_scoped || self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces.iter().cloned().map(Some).collect()
        };
        let store = Store::new(resource, cluster_scoped, namespaces.len(), group_of);
        let undecodable = Arc::new(AtomicI64::new(0));
        for namespace in namespaces {
            let report = Arc::new(Reporting {
                product: Arc::clone(&self.product),
                gate: self
                    .readiness
                    .gate(gate_name(&store, &selection, namespace.as_deref())),
                resource: store.resource().clone(),
                metrics: self.metrics.clone(),
                undecodable: Arc::clone(&undecodable),
                events: Arc::clone(&self.events),
                published: AtomicUsize::new(0),
            });
            let (watch, health) = guarded_watch(
                &self.client,
                store.resource(),
                namespace.as_deref(),
                selection.clone(),
            );
            self.ages.add(&health);
            let feed = Feed {
                watch,
                health,
                store: store.clone(),
                namespace,
                report,
                stand_in,
            };
            self.running.push(Box::pin(feed.run()));
        }
        store
    }
}

fn gate_name<K>(store: &Store<K>, selection: &Selection, namespace: Option<&str>) -> String {
    let title = title(store.resource(), selection, namespace);
    let kind = &store.resource().kind;
    title.replacen(kind.as_str(), &format!("{kind} list"), 1)
}

/// How many events about objects that cannot be read one watch causes.
const EVENTS: usize = 100;

/// Turns what a watch reports into readiness and metrics.
struct Reporting {
    product: Arc<str>,
    gate: Gate,
    resource: ApiResource,
    metrics: Metrics,
    undecodable: Arc<AtomicI64>,
    events: Arc<OnceLock<Events>>,
    /// How many events were published.
    published: AtomicUsize,
}

impl Report for Reporting {
    fn listed(&self) {
        self.gate.open();
    }

    fn failed(&self, error: &WatchError, first: bool) {
        if !first {
            // It was ready and still serves what it knows; a probe would take it out of service
            // when the API server is what fails.
            return;
        }
        if matches!(error, WatchError::Refused { code: 404, .. }) {
            let (plural, group) = (&self.resource.plural, &self.resource.group);
            self.gate.close(format!("CRD {plural}.{group}"));
        } else {
            self.gate
                .close(format!("{} list ({error})", self.resource.kind));
        }
    }

    fn undecodable(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let change = count - self.undecodable.swap(count, Ordering::AcqRel);
        self.metrics.undecodable(&self.resource.kind, change);
    }

    fn became_undecodable(&self, object: &Undecodable) {
        let Some(events) = self.events.get() else {
            return;
        };
        if object.metadata.uid.is_none() || self.published.fetch_add(1, Ordering::Relaxed) >= EVENTS
        {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: "Unreadable".to_owned(),
            action: "Watch".to_owned(),
            note: Some(format!(
                "{} cannot read this object, and treats it as gone: {object}",
                self.product
            )),
            secondary: None,
        };
        let metadata = &object.metadata;
        let about = ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        };
        events.publish(about, event);
    }
}
