//! Reads target workloads and their pods. Neither is watched: they are many and change often, and
//! all that is needed is what exists at the moment of a grant.
//!
//! Lists are answered from the API server's cache. A list that must be current waits until that cache has
//! caught up, and where it has not after some seconds, every object of the namespace is read from etcd:
//! somebody who writes fat pods all the time would delay the grants of others. What the cache says of
//! the one pod that was chosen is checked by a read of that pod, which is current and small.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use oz_api::{CrossVersionObjectReference, TargetKind};
use oz_core::access::target::{Workload, unusable};
use oz_core::access::workload::{self, Identity, Listed, Reader};
use oz_core::controller::Failure;
use oz_core::mutate::Model;
use oz_engine::Cx;
use parking_lot::Mutex;

/// Reads workloads; remembers what identifies them, so that a grant costs three reads and not four.
#[derive(Default)]
pub(crate) struct Workloads {
    known: Mutex<HashMap<Key, Identity>>,
}

/// Namespace, kind and name.
type Key = (String, TargetKind, String);

/// Reads of one pass in one namespace.
struct Reads<'a> {
    cx: &'a Cx,
    namespace: &'a str,
    lists: Lists,
}

/// How old lists may be.
#[derive(Clone, Copy)]
enum Lists {
    /// As old as the API server's cache, which may be behind by moments.
    Cached,
    /// Not older than the request for it.
    Current,
}

impl<'a> Reads<'a> {
    fn current(cx: &'a Cx, namespace: &'a str) -> Self {
        Self {
            cx,
            namespace,
            lists: Lists::Current,
        }
    }
}

impl Reader for Reads<'_> {
    fn namespace(&self) -> &str {
        self.namespace
    }

    async fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        self.cx.get_with(Some(self.namespace), name, resource).await
    }

    async fn list<K>(&self, selector: Option<&str>) -> Result<Vec<K>, Failure>
    where
        K: Listed,
    {
        let mut selection = ListParams {
            label_selector: selector.map(ToOwned::to_owned),
            ..ListParams::default()
        };
        if let Lists::Cached = self.lists {
            selection = selection.match_any();
        }
        self.cx.list(Some(self.namespace), &selection).await
    }
}

impl Workloads {
    /// Whether the workload exists, and can be told from others.
    pub(crate) async fn exists(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<(), Failure> {
        self.identify(&Reads::current(cx, namespace), target)
            .await
            .map(drop)
    }

    /// The workload with its pods: as the API server's cache has them, if the pod that is `wanted` by name
    /// (or any, if none is) can be used by that. Whoever chooses one asks [`Workloads::is_current`].
    pub(crate) async fn read(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
        wanted: Option<&str>,
    ) -> Result<Workload, Failure> {
        let known = {
            let known = self.known.lock();
            known.get(&key(namespace, target)).cloned()
        };
        if let Some(identity) = known {
            let cached = Reads {
                lists: Lists::Cached,
                ..Reads::current(cx, namespace)
            };
            let workload = workload::with_pods(&cached, target, identity).await?;
            // Without any pod of its own it may have been replaced by another of the same name.
            if workload.choose("", wanted).is_ok() {
                return Ok(workload);
            }
        }
        self.read_current(cx, namespace, target).await
    }

    /// The workload with its pods, as they are now.
    pub(crate) async fn read_current(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Workload, Failure> {
        let reads = Reads::current(cx, namespace);
        let identity = self.identify(&reads, target).await?;
        workload::with_pods(&reads, target, identity).await
    }

    /// Whether a pod that was chosen is still there, and can be used. One that cannot be read is not.
    pub(crate) async fn is_current(&self, cx: &Cx, namespace: &str, pod: &Pod) -> bool {
        let found = cx.get::<Pod>(Some(namespace), &pod.name_any()).await;
        found.is_ok_and(|found| {
            found.is_some_and(|found| found.uid() == pod.uid() && unusable(&found).is_none())
        })
    }

    /// The pod template of the workload, and what is special about its volumes.
    pub(crate) async fn model(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Model, Failure> {
        workload::model(&Reads::current(cx, namespace), target).await
    }

    async fn identify(
        &self,
        reads: &Reads<'_>,
        target: &CrossVersionObjectReference,
    ) -> Result<Identity, Failure> {
        let found = workload::identify(reads, target).await;
        let mut known = self.known.lock();
        match &found {
            Ok(identity) => known.insert(key(reads.namespace, target), identity.clone()),
            Err(_) => known.remove(&key(reads.namespace, target)),
        };
        found
    }
}

fn key(namespace: &str, target: &CrossVersionObjectReference) -> Key {
    (namespace.to_owned(), target.kind, target.name.clone())
}

#[cfg(test)]
mod tests;
