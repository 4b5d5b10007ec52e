//! Checkpoints of the chain, in the log and in a ConfigMap: the task signs some seconds after there are new records,
//! and never without new records.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_api::{labels, names};
use oz_trail::{AuditKey, Checkpoint, Head, Trust};

use crate::Trail;
use crate::key::WriterKeys;

/// The number of new records that are signed without waiting for the end of the interval.
const MANY: u64 = 1_000;
/// The maximum number of chains that the first record of a chain names.
const NAMED: usize = 32;

/// Reads the newest heads from the cluster, as far as their signatures are valid: by the writer's own key, and by keys
/// that the operator's key vouches for.
pub(crate) async fn read_heads(keys: &WriterKeys, key: &AuditKey) -> anyhow::Result<Vec<Head>> {
    let (maps, namespace) = (keys.maps(), &keys.namespace);
    let read = |name: &'static str| {
        let maps = maps.clone();
        async move {
            let map = maps.get_opt(name).await;
            map.with_context(|| format!("failed to read ConfigMap {namespace}/{name}"))
                .map(|map| map.and_then(|map| map.data).into_iter().flatten())
        }
    };
    let published: Vec<_> = read(names::AUDIT_PUBLIC_KEYS)
        .await?
        .filter_map(|(_, text)| serde_json::from_str(&text).ok())
        .collect();
    let mut pins = vec![match keys.is_operator() {
        true => key.public(),
        false => format!("{} {}", keys.component(), key.public()),
    }];
    if !keys.is_operator() {
        let operator = WriterKeys::new(&keys.client, namespace, names::OPERATOR)?;
        let pin = operator.public().read().await?;
        pins.extend(pin.filter(|pin| Trust::pinned([pin.as_str()]).is_ok()));
    }
    let mut trust = Trust::pinned(pins.iter().map(String::as_str))?;
    trust.extend(&published);
    let mut heads: Vec<Head> = read(names::AUDIT_CHECKPOINTS)
        .await?
        .filter_map(|(_, text)| serde_json::from_str::<Checkpoint>(&text).ok())
        .filter(|checkpoint| checkpoint.check(&trust).is_ok())
        .map(|checkpoint| checkpoint.head)
        .collect();
    heads.sort_by_key(|head| std::cmp::Reverse(head.time));
    heads.truncate(NAMED);
    Ok(heads)
}

/// Signs new records, and writes the due summaries of counted records, until the process ends.
pub(crate) async fn keep(trail: Trail, client: Client, namespace: String, every: Duration) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    loop {
        trail.shared.changed.notified().await;
        // Records that follow within the interval are signed with it.
        let deadline = tokio::time::Instant::now() + every;
        loop {
            let (unsigned, closing, summary) = {
                let ledger = trail.ledger();
                (
                    ledger.unsigned(),
                    ledger.is_closing(),
                    ledger.next_summary(),
                )
            };
            let due = tokio::time::Instant::now() >= deadline;
            if closing || unsigned >= MANY || (due && (unsigned > 0 || summary.is_none())) {
                break;
            }
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let until_summary = summary.map(|at| {
                let left = at.duration_since(trail.shared.clock.now());
                left.max(SignedDuration::ZERO).unsigned_abs()
            });
            let sleep = match until_summary {
                Some(summary) if due => summary,
                Some(summary) => summary.min(left),
                None => left,
            };
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = trail.shared.changed.notified() => {}
            }
            summarise(&trail);
        }
        sign(&trail, &maps).await;
        if trail.ledger().next_summary().is_some() {
            // The loop must run again for it.
            trail.shared.changed.notify_one();
        }
    }
}

fn summarise(trail: &Trail) {
    let now = trail.shared.clock.now();
    let due = trail.ledger().summaries(now);
    for record in due {
        if let Err(failure) = trail.append(record) {
            tracing::error!(%failure, "a summary of counted events is lost");
        }
    }
}

async fn sign(trail: &Trail, maps: &Api<ConfigMap>) {
    let Some(checkpoint) = trail.ledger().checkpoint() else {
        return;
    };
    for outlet in &trail.shared.outlets {
        outlet.checkpoint(&checkpoint.line());
    }
    match publish(maps, &checkpoint).await {
        Ok(()) => {
            trail.published(checkpoint.head.seq);
            trail.shared.meters.signed();
        }
        Err(error) => {
            trail.shared.meters.failed("checkpoints");
            tracing::warn!(%error, "failed to publish a checkpoint of the audit trail; retrying");
            let again = trail.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                again.shared.changed.notify_one();
            });
        }
    }
}

async fn publish(maps: &Api<ConfigMap>, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let slot = checkpoint.slot();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::AUDIT_CHECKPOINTS.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::MANAGED_BY.to_owned(),
                labels::OZ.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            slot.clone(),
            serde_json::to_string(checkpoint)?,
        )])),
        ..ConfigMap::default()
    };
    // Each replica has a separate field manager: an apply removes the entries that its manager leaves out.
    let manager = format!("oz-audit/{slot}");
    let manager = &manager[..manager.floor_char_boundary(128)];
    let apply = PatchParams::apply(manager).force();
    maps.patch(names::AUDIT_CHECKPOINTS, &apply, &Patch::Apply(&map))
        .await?;
    Ok(())
}
