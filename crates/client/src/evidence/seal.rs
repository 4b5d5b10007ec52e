//! The seal of a bundle: an order in a ConfigMap of oz's namespace, which the operator carries out by writing an audit
//! record.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::names::AUDIT_EVIDENCE;
use oz_compliance::evidence::SealOrder;
use oz_trail::{Action, Query};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::trail;

/// The time limit of the wait for the operator.
const SEAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of polling.
const POLL: Duration = Duration::from_millis(200);

/// Requests a seal over these sums from the oz in the namespace `oz`, and returns the audit record that seals them.
///
/// # Errors
/// The order cannot be created, or is not carried out.
pub async fn seal(cluster: &Cluster, oz: &str, sums: &str, by: &str) -> Result<Value> {
    let order = SealOrder {
        sums: sums.to_owned(),
        by: by.to_owned(),
    };
    if let Some(record) = record(cluster, sums).await? {
        return Ok(record);
    }
    let text = serde_json::to_string(&order)
        .map_err(|error| Failure::new(format!("failed to write the order: {error}")))?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), oz);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": AUDIT_EVIDENCE}, "data": {order.key(): text},
    });
    // Each order has its own field manager, so that no order removes another.
    let short: String = order.key().chars().take(16).collect();
    let manager = format!("ozctl-{short}");
    let apply = PatchParams::apply(&manager);
    let map = Patch::Apply(map);
    let left = maps.patch(AUDIT_EVIDENCE, &apply, &map);
    let what = format!("failed to ask for a seal in ConfigMap {oz}/{AUDIT_EVIDENCE}");
    cluster.answer(left).await.map_err(|failure| {
        failure.during(&what).or_next(&format!(
            "have an administrator bind you to Role oz-evidence-sealer in namespace {oz}, or \
             create evidence without a seal (--unsealed)"
        ))
    })?;
    let since = Instant::now();
    while since.elapsed() < SEAL_TIMEOUT {
        let map = cluster.answer(maps.get_opt(AUDIT_EVIDENCE)).await?;
        let waits = map.and_then(|map| map.data);
        // The operator removes the order when its audit record is in the cluster.
        if waits.is_none_or(|waits| !waits.contains_key(order.key()))
            && let Some(record) = record(cluster, sums).await?
        {
            return Ok(record);
        }
        tokio::time::sleep(POLL).await;
    }
    let message = format!("the operator has not sealed the evidence within {SEAL_TIMEOUT:?}");
    Err(Failure::new(message).next(
        "check that it runs (`ozctl doctor`) and its log, or create evidence without a seal \
            (--unsealed)",
    ))
}

/// Returns the spec of the audit record that seals these sums.
async fn record(cluster: &Cluster, sums: &str) -> Result<Option<Value>> {
    let query = Query {
        action: Some(Action::EvidenceSealed),
        ..Query::default()
    };
    let mut found = None;
    trail::pages(cluster, &query.selector(), |object| {
        let spec = &object.data["spec"];
        if spec["details"]["sums"] == sums {
            found.get_or_insert_with(|| spec.clone());
        }
    })
    .await?;
    Ok(found)
}
