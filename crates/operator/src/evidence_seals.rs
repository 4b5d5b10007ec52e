//! The seals of evidence: a user who may write ConfigMap `oz-audit-evidence` stores the digest of a
//! bundle's sums there, and gets an audit record of it, signed by the audit key. The operator does
//! not know the contents of the bundle, and makes no claim about them. It reads nothing until such
//! a ConfigMap exists.
//! See docs/adr/0030-who-seals-evidence.md.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Client};
use oz_api::names::AUDIT_EVIDENCE;
use oz_audit::{Sink as _, Trail};
use oz_compliance::evidence::SealOrder;
use oz_runtime::{Clock, Selection, StoreEvent, Task, guarded_watch};

/// The maximum number of orders that are carried out from one ConfigMap; further ones are dropped
/// with it.
const MOST: usize = 64;
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// The task that carries out orders to seal evidence.
pub(crate) struct EvidenceSeals {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) trail: Trail,
    pub(crate) namespace: String,
}

impl Task for EvidenceSeals {
    async fn run(&self) {
        let resource = ApiResource::erase::<ConfigMap>(&());
        let this = Selection::with_name(AUDIT_EVIDENCE);
        let mut maps =
            guarded_watch::<ConfigMap>(&self.client, &resource, Some(&self.namespace), this).0;
        loop {
            let (StoreEvent::Apply(map) | StoreEvent::InitApply(map)) = maps.next(|_| {}).await
            else {
                continue;
            };
            let Ok(found) = map.0 else { continue };
            // A ConfigMap that has since been changed or deleted is done: the watch shows the
            // current one.
            while let Err(error) = self.carry_out(&found).await {
                tracing::warn!("failed to seal evidence; retrying: {error:#}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

impl EvidenceSeals {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Records the digests to seal, and deletes the ConfigMap, which shows the requester that the
    /// seal is done.
    async fn carry_out(&self, map: &ConfigMap) -> anyhow::Result<()> {
        if map.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for (key, text) in map.data.iter().flatten().take(MOST) {
            match SealOrder::read(key, text) {
                Ok(order) => {
                    let recorded = self.trail.record(&order.record(self.clock.now())).await;
                    recorded.context("failed to record a seal")?;
                }
                Err(error) => tracing::warn!(
                    %error,
                    map = AUDIT_EVIDENCE,
                    "failed to read an order to seal evidence; write it with `ozctl audit evidence`"
                ),
            }
        }
        // A ConfigMap with a new order is not deleted: the watch shows that order.
        let this = DeleteParams::default().preconditions(Preconditions {
            uid: map.metadata.uid.clone(),
            resource_version: map.metadata.resource_version.clone(),
        });
        match self.maps().delete(AUDIT_EVIDENCE, &this).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }
}
