//! Reads target workloads and their pods. Neither is watched: they are many and change often, and
//! all that is needed is what exists at the moment of a grant.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use oz_core::access::target::Workload;
use oz_core::access::workload::{self, Identity, Listed, Reader};
use oz_core::api::{CrossVersionObjectReference, TargetKind};
use oz_core::controller::Failure;
use oz_core::mutate::Model;
use oz_engine::Cx;

/// Reads workloads; remembers what identifies them, so that a grant costs two reads and not three.
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
        let selection = ListParams {
            label_selector: selector.map(ToOwned::to_owned),
            ..ListParams::default()
        };
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
        self.identify(&Reads { cx, namespace }, target)
            .await
            .map(drop)
    }

    /// The workload with its pods.
    pub(crate) async fn read(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Workload, Failure> {
        let reads = Reads { cx, namespace };
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&key(namespace, target)).cloned()
        };
        if let Some(identity) = known {
            let workload = workload::with_pods(&reads, target, identity).await?;
            // Without any pod of its own it may have been replaced by another of the same name.
            if workload.choose("", None).is_ok() {
                return Ok(workload);
            }
        }
        let identity = self.identify(&reads, target).await?;
        workload::with_pods(&reads, target, identity).await
    }

    /// The pod template of the workload, and what is special about its volumes.
    pub(crate) async fn model(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Model, Failure> {
        workload::model(&Reads { cx, namespace }, target).await
    }

    async fn identify(
        &self,
        reads: &Reads<'_>,
        target: &CrossVersionObjectReference,
    ) -> Result<Identity, Failure> {
        let found = workload::identify(reads, target).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
