//! Seals evidence: whoever may write ConfigMap `oz-audit-evidence` names the digest of a bundle's sums there, and gets
//! a record of it, signed by the audit key. The operator knows nothing of what is in the bundle, and says nothing
//! about it. Nothing is read until there is such a ConfigMap.

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

/// How many orders of one ConfigMap are carried out; what is more is dropped with it.
const MOST: usize = 64;
/// After a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// Carries out orders to seal evidence.
pub(crate) struct EvidenceSeals {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) trail: Trail,
    pub(crate) namespace: String,
}

impl Task for EvidenceSeals {
    async fn run(&self) {
        let resource = ApiResource::erase::<ConfigMap>(&());
        let this = Selection::named(AUDIT_EVIDENCE);
        let mut maps =
            guarded_watch::<ConfigMap>(&self.client, &resource, Some(&self.namespace), this).0;
        loop {
            let (StoreEvent::Apply(map) | StoreEvent::InitApply(map)) = maps.next(|_| {}).await
            else {
                continue;
            };
            let Ok(found) = map.0 else { continue };
            // One that was changed or deleted meanwhile is done with: the watch tells of what is there now.
            while let Err(error) = self.carry_out(&found).await {
                tracing::warn!("failed to seal evidence; trying again: {error:#}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

impl EvidenceSeals {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Puts on record what is to be sealed, and deletes the ConfigMap, by which whoever asked sees that it is done.
    async fn carry_out(&self, map: &ConfigMap) -> anyhow::Result<()> {
        if map.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for (key, text) in map.data.iter().flatten().take(MOST) {
            match SealOrder::read(key, text) {
                Ok(order) => {
                    let recorded = self.trail.record(&order.record(self.clock.now())).await;
                    recorded.context("failed to put a seal on record")?;
                }
                Err(error) => tracing::warn!(
                    %error,
                    map = AUDIT_EVIDENCE,
                    "an order to seal evidence cannot be read; write it with `ozctl audit evidence`"
                ),
            }
        }
        // Not one that has got another order meanwhile: the watch tells of that.
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
