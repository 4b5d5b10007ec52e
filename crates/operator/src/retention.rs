//! AuditEvents go when they are as old as they are kept, to the instant. Their names sort by time,
//! so the oldest are the first page of a list: nothing is cached, nothing is watched, and a restart
//! changes nothing. What proves that none went earlier, the checkpoints, stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use oz_core::api::AuditEvent;
use oz_core::audit::{Checkpoint, time_in_name};
use oz_engine::{Clock, Leadership};
use oz_process::audit::CHECKPOINTS;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// How many events are looked at, and deleted, at a time.
const PAGE: u32 = 500;
/// How many deletions are under way at once.
const AT_ONCE: usize = 8;
/// The longest sleep: a clock that is set is noticed within this.
const SLICE: Duration = Duration::from_secs(60);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// While another replica leads: what falls due when it is gone is late by no more.
const STANDBY: SignedDuration = SignedDuration::from_secs(1);

/// Deletes what is old enough.
pub(crate) struct Retention {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long events are kept.
    pub(crate) keep: SignedDuration,
    pub(crate) namespace: String,
    /// Who must hold the lease, if replicas compete for one.
    pub(crate) leader: Option<String>,
    pub(crate) reaped: Counter,
}

impl Retention {
    /// Goes on until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let mut due = self.clock.now();
        let mut failed = false;
        loop {
            let left = Duration::try_from(due.duration_since(self.clock.now()));
            let sleep = left.unwrap_or_default().min(SLICE);
            tokio::select! {
                () = tokio::time::sleep(if failed { AGAIN } else { sleep }) => {}
                () = shutdown.cancelled() => return,
            }
            if self.clock.now() < due && !failed {
                continue;
            }
            match self.reap().await {
                Ok(next) => (due, failed) = (next, false),
                Err(error) => {
                    tracing::warn!(%error, "failed to delete old AuditEvents; trying again");
                    failed = true;
                }
            }
        }
    }

    /// Deletes what is due, and says when the next one is.
    async fn reap(&self) -> kube::Result<Timestamp> {
        if !self.leads().await? {
            return Ok(self.clock.now() + STANDBY);
        }
        let events: Api<AuditEvent> = Api::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        let mut reaped = 0_u64;
        let next = loop {
            let list = events.list_metadata(&page).await?;
            let now = self.clock.now();
            let mut old = Vec::new();
            let mut next = None;
            for event in &list.items {
                // What has another name is not ours; it is left for people to see.
                let name = event.name_any();
                let Some(time) = time_in_name(&name) else {
                    continue;
                };
                let due = time.checked_add(self.keep).unwrap_or(Timestamp::MAX);
                if due > now {
                    next = Some(due);
                    break;
                }
                old.push(name);
            }
            reaped += self.delete(&events, &old).await?;
            if let Some(next) = next {
                break next;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                // What was on this page is gone: the list begins later now.
                Some(_) if !old.is_empty() => page = ListParams::default().limit(PAGE),
                Some(token) => page = page.continue_token(&token),
                // What comes now is kept as long as everything.
                None => break now.checked_add(self.keep).unwrap_or(Timestamp::MAX),
            }
        };
        if reaped > 0 {
            tracing::debug!(reaped, %next, "deleted old AuditEvents");
        }
        self.forget().await?;
        Ok(next)
    }

    async fn delete(&self, events: &Api<AuditEvent>, names: &[String]) -> kube::Result<u64> {
        let mut reaped = 0;
        for names in names.chunks(AT_ONCE) {
            let deletions = names.iter().map(|name| delete(events, name));
            for deleted in join_all(deletions).await {
                if deleted? {
                    reaped += 1;
                    self.reaped.inc();
                }
            }
        }
        Ok(reaped)
    }

    /// Drops checkpoints of replicas of which nothing has been left for as long again.
    async fn forget(&self) -> kube::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(map) = maps.get_opt(CHECKPOINTS).await? else {
            return Ok(());
        };
        let twice = self.keep.checked_mul(2).unwrap_or(SignedDuration::MAX);
        let since = self
            .clock
            .now()
            .checked_sub(twice)
            .unwrap_or(Timestamp::MIN);
        let old: BTreeMap<String, Option<()>> = map
            .data
            .into_iter()
            .flatten()
            .filter(|(_, text)| {
                let read = serde_json::from_str::<Checkpoint>(text);
                read.is_ok_and(|checkpoint| checkpoint.head.time < since)
            })
            .map(|(slot, _)| (slot, None))
            .collect();
        if old.is_empty() {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "data": old }));
        maps.patch(CHECKPOINTS, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    async fn leads(&self) -> kube::Result<bool> {
        let Some(replica) = &self.leader else {
            return Ok(true);
        };
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = leases.get_opt(Leadership::LEASE).await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.as_ref() == Some(replica))
    }
}

/// Whether it was there.
async fn delete(events: &Api<AuditEvent>, name: &str) -> kube::Result<bool> {
    match events.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
