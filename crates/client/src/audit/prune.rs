//! The deletion of the oldest audit records from the cluster: an order in a ConfigMap of oz's namespace, which the
//! operator carries out and records, so that verification can account for it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::names::AUDIT_PRUNE;
use oz_trail::PruneOrder;
use serde_json::json;
use tokio::time::Instant;

use crate::choose;
use crate::cluster::Cluster;
use crate::failure::Failure;

/// The timeout for the operator to delete the records.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(300);
/// The interval between checks for the result.
const POLL: Duration = Duration::from_secs(1);

/// The reason why audit records are not deleted.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The name of the user cannot be read.
    #[error(transparent)]
    Cluster(#[from] Failure),
    /// The order cannot be written as JSON.
    #[error("failed to write the order: {0}")]
    Unwritten(serde_json::Error),
    /// The API server does not accept the order.
    #[error(
        "failed to write the order to ConfigMap {namespace}/{}: {error}",
        AUDIT_PRUNE
    )]
    NotLeft {
        /// The namespace of oz.
        namespace: String,
        /// The reason.
        error: kube::Error,
    },
    /// The order cannot be read again.
    #[error("failed to read ConfigMap {namespace}/{}: {error}", AUDIT_PRUNE)]
    Unread {
        /// The namespace of oz.
        namespace: String,
        /// The reason.
        error: kube::Error,
    },
    /// The operator does not carry it out in time.
    #[error("the operator has not carried out the order yet")]
    Pending,
}

impl From<PruneError> for Failure {
    fn from(error: PruneError) -> Self {
        match error {
            PruneError::Cluster(failure) => failure,
            PruneError::Pending => Self::new(error.to_string())
                .next("check its log; the order stays until it is carried out"),
            error => Self::new(error.to_string()),
        }
    }
}

/// Orders the deletion of the audit records from before this instant, by the oz in the namespace `oz`.
///
/// # Errors
/// The order cannot be created.
pub async fn prune(cluster: &Cluster, oz: &str, before: Timestamp) -> Result<(), PruneError> {
    let order = PruneOrder {
        before,
        by: choose::myself(cluster).await?.user,
    };
    let text = serde_json::to_string(&order).map_err(PruneError::Unwritten)?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": AUDIT_PRUNE}, "data": {PruneOrder::KEY: text},
    });
    let apply = PatchParams::apply("ozctl").force();
    let left = orders(cluster, oz);
    let left = left.patch(AUDIT_PRUNE, &apply, &Patch::Apply(map)).await;
    left.map(drop).map_err(|error| PruneError::NotLeft {
        namespace: oz.to_owned(),
        error,
    })
}

/// Waits until the operator has carried out the order.
///
/// # Errors
/// The order cannot be read, or is not carried out in time.
pub async fn pruned(cluster: &Cluster, oz: &str) -> Result<(), PruneError> {
    let orders = orders(cluster, oz);
    let since = Instant::now();
    while since.elapsed() < PRUNE_TIMEOUT {
        let left = orders.get_opt(AUDIT_PRUNE).await;
        let left = left.map_err(|error| PruneError::Unread {
            namespace: oz.to_owned(),
            error,
        })?;
        if left.is_none() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Err(PruneError::Pending)
}

fn orders(cluster: &Cluster, oz: &str) -> Api<ConfigMap> {
    Api::namespaced(cluster.client.clone(), oz)
}
