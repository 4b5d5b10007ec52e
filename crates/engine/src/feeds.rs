//! The watches of one engine: what they feed, and what is to be said about them in probes and
//! metrics.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::BoxFuture;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::metrics::Metrics;
use crate::readiness::{Gate, Readiness};
use crate::store::{Feed, Report, Store};

/// Watches that are to run, and what the next ones need.
pub(crate) struct Feeds {
    client: Client,
    metrics: Metrics,
    readiness: Readiness,
    /// Namespaces to watch; all if empty.
    pub(crate) namespaces: Vec<String>,
    /// One future per watch.
    pub(crate) running: Vec<BoxFuture<'static, ()>>,
}

impl Feeds {
    pub(crate) fn new(client: Client, metrics: Metrics, readiness: Readiness) -> Self {
        Self {
            client,
            metrics,
            readiness,
            namespaces: Vec::new(),
            running: Vec::new(),
        }
    }

    /// A store and the watches that feed it, which begin when the engine runs.
    pub(crate) fn store<K>(
        &mut self,
        resource: ApiResource,
        cluster_scoped: bool,
        config: watcher::Config,
        group_of: Option<fn(&K) -> Option<&str>>,
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
            let report = Arc::new(Told {
                gate: self
                    .readiness
                    .gate(gate_name(&store, &config, namespace.as_deref())),
                resource: store.resource().clone(),
                metrics: self.metrics.clone(),
                undecodable: Arc::clone(&undecodable),
            });
            let feed = Feed {
                client: self.client.clone(),
                store: store.clone(),
                namespace,
                config: config.clone(),
                report,
            };
            self.running.push(Box::pin(feed.run()));
        }
        store
    }
}

fn gate_name<K>(store: &Store<K>, config: &watcher::Config, namespace: Option<&str>) -> String {
    let kind = &store.resource().kind;
    let mut name = match &config.label_selector {
        None => format!("{kind} list"),
        Some(selector) => format!("{kind} list ({selector})"),
    };
    if let Some(namespace) = namespace {
        name.push_str(" in ");
        name.push_str(namespace);
    }
    name
}

/// Turns what a watch reports into readiness and metrics.
struct Told {
    gate: Gate,
    resource: ApiResource,
    metrics: Metrics,
    undecodable: Arc<AtomicI64>,
}

impl Report for Told {
    fn listed(&self) {
        self.gate.open();
    }

    fn failed(&self, error: &str, missing: bool, first: bool) {
        if !first {
            // It was ready and still serves what it knows; a probe would take it out of service
            // when the API server is what fails.
            return;
        }
        if missing {
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
}
