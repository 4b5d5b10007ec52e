//! Reading the audit trail: events from the cluster, page by page, and what is published about them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use oz_core::api::AuditEvent;
use oz_core::audit::{Entry, Query};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// Events in one answer of the API server.
const PAGE: u32 = 500;

/// The records that a query may match.
///
/// # Errors
/// When they cannot be read.
pub async fn entries(cluster: &Cluster, query: &Query) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    pages(cluster, &query.selector(), |object| {
        if let Ok(entry) = serde_json::from_value(object.data["spec"].clone()) {
            entries.push(entry);
        }
    })
    .await?;
    Ok(entries)
}

/// Puts the oldest first. Records of one chain may have one time; they stay in its order.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| {
        let times = one.record.time.cmp(&other.record.time);
        let (one, other) = (&one.link, &other.link);
        times.then_with(|| (&one.writer, one.seq).cmp(&(&other.writer, other.seq)))
    });
}

/// The events as the API has them.
#[must_use]
pub fn events(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(
        cluster.client.clone(),
        &ApiResource::erase::<AuditEvent>(&()),
    )
}

/// Hands every event to `each`, a page at a time.
///
/// # Errors
/// When they cannot be read.
pub async fn pages(
    cluster: &Cluster,
    selector: &str,
    mut each: impl FnMut(DynamicObject),
) -> Result<()> {
    let events = events(cluster);
    let mut page = ListParams::default().limit(PAGE).labels(selector);
    loop {
        let list = cluster.answer(events.list(&page)).await.map_err(rights)?;
        list.items.into_iter().for_each(&mut each);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// What a ConfigMap of oz says, if it exists.
///
/// # Errors
/// When it cannot be read.
pub async fn map(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<(String, String)>> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let map = cluster.answer(maps.get_opt(name)).await.map_err(rights)?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    Ok(data.into_iter().collect())
}

fn rights(failure: Failure) -> Failure {
    if failure.is_forbidden() {
        return failure.next(
            "have an administrator bind you to ClusterRole oz-audit-reader, and to the Role of \
             that name in oz's namespace",
        );
    }
    failure
}
