//! Reading the audit trail: events from the cluster, page by page, and the published keys and checkpoints.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use oz_api::names::{AUDIT_CHECKPOINTS, AUDIT_PUBLIC_KEYS};
use oz_trail::{AuditEvent, Checkpoint, Entry, Published, Query, Trust};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The number of events in one page.
const PAGE: u32 = 500;

/// Returns the audit records that a query may match.
///
/// # Errors
/// The audit records cannot be read.
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

/// Sorts audit records, the oldest first. Audit records of one chain may have the same time; they remain in the order
/// of the chain.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| {
        let times = one.record.time.cmp(&other.record.time);
        let (one, other) = (&one.link, &other.link);
        times.then_with(|| (&one.writer, one.seq).cmp(&(&other.writer, other.seq)))
    });
}

/// Returns the API for AuditEvents.
#[must_use]
pub fn events(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(
        cluster.client.clone(),
        &ApiResource::erase::<AuditEvent>(&()),
    )
}

/// Passes every event to `each`, a page at a time.
///
/// # Errors
/// The events cannot be read.
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

/// Returns the data of a ConfigMap of oz, if it exists.
///
/// # Errors
/// The ConfigMap cannot be read.
pub async fn map(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<(String, String)>> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let map = cluster.answer(maps.get_opt(name)).await.map_err(rights)?;
    let data = map.and_then(|map| map.data);
    Ok(data.into_iter().flatten().collect())
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

/// The keys of the audit trail, as the cluster has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The published keys.
    pub published: Vec<Published>,
    /// The last checkpoints with a signature by a key that is not published: WRITER, and the key's name.
    pub lost: Vec<(String, String)>,
}

impl Keys {
    /// Parses the data of the ConfigMaps, by slot.
    ///
    /// # Errors
    /// A published key is not valid.
    pub fn parse(
        published: impl IntoIterator<Item = (String, String)>,
        checkpoints: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let published = published.into_iter().map(|(slot, text)| {
            let read: Published = serde_json::from_str(&text).map_err(|error| {
                Failure::new(format!("failed to read the published key {slot}: {error}"))
            })?;
            Ok(read)
        });
        let published = published.collect::<Result<Vec<_>>>()?;
        let trust = Trust::published(&published);
        let trust = trust.map_err(|error| Failure::new(error.to_string()))?;
        let known = trust.ids();
        let lost = checkpoints.into_iter().filter_map(|(slot, text)| {
            let checkpoint: Checkpoint = serde_json::from_str(&text).ok()?;
            let (key, _) = checkpoint.signature.split_once(':')?;
            (!known.contains(key)).then(|| (slot, key.to_owned()))
        });
        let lost = lost.collect();
        Ok(Self { published, lost })
    }
}

/// Reads the keys of the audit trail of the oz in this namespace.
///
/// # Errors
/// The keys cannot be read.
pub async fn keys(cluster: &Cluster, namespace: &str) -> Result<Keys> {
    let (published, checkpoints) = futures::future::try_join(
        map(cluster, namespace, AUDIT_PUBLIC_KEYS),
        map(cluster, namespace, AUDIT_CHECKPOINTS),
    )
    .await?;
    Keys::parse(published, checkpoints)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use oz_trail::{AuditKey, Chain, Medium, Writer};

    use super::*;

    #[test]
    fn checkpoint_by_unpublished_key_is_reported() {
        let checkpoint = |key: &AuditKey| {
            let writer = Writer::new("oz-operator", "oz-0", Timestamp::UNIX_EPOCH, 1);
            let (_, first) = Chain::begin(writer, Timestamp::UNIX_EPOCH, &[], key);
            let checkpoint = Checkpoint::sign(first.head(&[Medium::Log]), key);
            serde_json::to_string(&checkpoint).unwrap()
        };
        let (kept, lost) = (AuditKey::new(&[1; 32]), AuditKey::new(&[2; 32]));
        let published = serde_json::to_string(&kept.published(None)).unwrap();
        let slot = |name: &str, text: String| (name.to_owned(), text);
        let keys = Keys::parse(
            [slot("1", published)],
            [
                slot("operator.0", checkpoint(&kept)),
                slot("webhook.0", checkpoint(&lost)),
            ],
        )
        .unwrap();
        assert_eq!(keys.published.len(), 1);
        assert_eq!(keys.lost, [slot("webhook.0", lost.id().to_owned())]);
        assert!(Keys::parse([slot("1", "x".to_owned())], []).is_err());
    }
}
