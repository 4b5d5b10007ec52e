//! The reads of target workloads and their pods. Neither is watched: they are many and change
//! often, and a decision requires only the objects that exist at the moment of a grant.
//!
//! Lists are served from the API server's cache. A list that must be current waits until that cache
//! has caught up, and if it has not after some seconds, every object of the namespace is read from
//! etcd: a user who continuously writes large pods would delay the grants of others. The cached
//! data of the one chosen pod are checked by a read of that pod, which is current and small.

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

/// The reader of workloads; it stores their identities, so that a grant requires three reads and
/// not four.
#[derive(Default)]
pub(crate) struct Workloads {
    known: Mutex<HashMap<Key, Identity>>,
}

/// The namespace, kind and name of a workload.
type Key = (String, TargetKind, String);

/// The reads of one pass in one namespace.
struct Reads<'a> {
    cx: &'a Cx,
    namespace: &'a str,
    lists: Lists,
}

/// The maximum age of lists.
#[derive(Clone, Copy)]
enum Lists {
    /// Lists as old as the API server's cache, which may lag by moments.
    Cached,
    /// Lists that are not older than the request for them.
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
    /// Checks whether the workload exists, and can be distinguished from others.
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

    /// Returns the workload with its pods: from the API server's cache, if the pod with the name
    /// `wanted` is usable according to the cache, or any pod is Ready, if it is `None`. A caller that
    /// chooses a pod calls [`Workloads::is_current`].
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
            // A workload without own pods may have been replaced by another with the same name.
            if workload.has_ready(wanted) {
                return Ok(workload);
            }
        }
        self.read_current(cx, namespace, target).await
    }

    /// Returns the workload with its current pods.
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

    /// Checks whether a chosen pod still exists, and is usable. A pod that cannot be read is not.
    pub(crate) async fn is_current(&self, cx: &Cx, namespace: &str, pod: &Pod) -> bool {
        let found = cx.get::<Pod>(Some(namespace), &pod.name_any()).await;
        found.is_ok_and(|found| {
            found.is_some_and(|found| found.uid() == pod.uid() && unusable(&found).is_none())
        })
    }

    /// Returns the pod template of the workload, and the special properties of its volumes.
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
