//! The retention of AuditEvents: each is deleted at exactly its maximum age. The oldest are deleted
//! earlier if there are too many, or on the order of an administrator, and this is recorded first.
//! Their names sort by time, so the oldest are the first page of a list: there is no cache and no
//! watch, and a restart changes nothing. The checkpoints, which prove that no other event was
//! deleted, stay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use oz_api::names;
use oz_audit::{Sink, Trail};
use oz_runtime::{Clock, Task};
use oz_trail::{AuditEvent, Checkpoint, PruneOrder, Shortening, excess, time_in_name};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;

/// The number of events that are read, and deleted, at a time.
const PAGE: u32 = 500;
/// The maximum number of concurrent deletions.
const AT_ONCE: usize = 8;
/// The maximum sleep: a changed clock is noticed within this time.
const SLICE: Duration = Duration::from_secs(60);
/// The interval between two checks for too many events, or for an order.
const LOOK: SignedDuration = SignedDuration::from_secs(10);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// The task that deletes old AuditEvents.
pub(crate) struct Retention {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    /// The time for which events are kept.
    pub(crate) keep: SignedDuration,
    /// The maximum number of events; 0 for any number.
    pub(crate) most: u64,
    /// The audit trail, which records deletions before the maximum age.
    pub(crate) trail: Trail,
    pub(crate) namespace: String,
    pub(crate) reaped: Counter,
}

impl Task for Retention {
    async fn run(&self) {
        let mut due = self.clock.now();
        let mut failed = false;
        loop {
            let left = due.duration_since(self.clock.now());
            let sleep = left.max(SignedDuration::ZERO).unsigned_abs().min(SLICE);
            tokio::time::sleep(if failed { AGAIN } else { sleep }).await;
            if self.clock.now() < due && !failed {
                continue;
            }
            match self.reap().await {
                Ok(next) => (due, failed) = (next, false),
                Err(error) => {
                    tracing::warn!(%error, "failed to delete old AuditEvents; retrying");
                    failed = true;
                }
            }
        }
    }
}

impl Retention {
    /// Deletes the due events, and returns the time of the next check.
    async fn reap(&self) -> anyhow::Result<Timestamp> {
        let events: Api<AuditEvent> = Api::all(self.client.clone());
        let order = self.order().await?;
        let shortened = self.shorten(&events, order.as_ref()).await?;
        let next = self.reap_before(&events, shortened).await?;
        if order.is_some() {
            self.carried_out().await?;
        }
        self.forget().await?;
        // Too many events, or an order, can come at any time.
        Ok(next.min(self.clock.now() + LOOK))
    }

    /// Records the deletion of the oldest events, if there are too many or an administrator orders
    /// it, and returns the time up to which they are deleted.
    async fn shorten(
        &self,
        events: &Api<AuditEvent>,
        order: Option<&PruneOrder>,
    ) -> anyhow::Result<Option<Timestamp>> {
        let mut shortened = None;
        if let Some(order) = order {
            // Events that are being written now are not part of the order.
            let before = order.before.min(self.clock.now());
            self.record(&Shortening::Asked(order.clone()), before)
                .await?;
            shortened = Some(before);
        }
        let first = events
            .list_metadata(&ListParams::default().limit(1))
            .await?;
        let more = first.metadata.remaining_item_count;
        let more = more.map(|more| more.max(0).unsigned_abs());
        let there = (first.items.len() as u64).saturating_add(more.unwrap_or_default());
        let excess = excess(there, self.most);
        if excess > 0
            && let Some(before) = self.time_at(events, excess).await?
            && shortened.is_none_or(|known| known < before)
        {
            let why = Shortening::TooMany {
                events: there,
                most: self.most,
            };
            self.record(&why, before).await?;
            shortened = Some(before);
        }
        Ok(shortened)
    }

    /// Records a deletion in all sinks of audit records, before it happens.
    async fn record(&self, why: &Shortening, before: Timestamp) -> anyhow::Result<()> {
        let record = why.record(self.clock.now(), before);
        tracing::warn!(%before, why = record.message, "the audit trail is shortened");
        let recorded = self.trail.record(&record).await;
        recorded.context("failed to record that the audit trail is shortened")
    }

    /// Returns the time of the event after this many others.
    async fn time_at(
        &self,
        events: &Api<AuditEvent>,
        mut skip: u64,
    ) -> kube::Result<Option<Timestamp>> {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = events.list_metadata(&page).await?;
            for event in &list.items {
                if let Some(time) = time_in_name(&event.name_any()) {
                    if skip == 0 {
                        return Ok(Some(time));
                    }
                    skip -= 1;
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(None),
            }
        }
    }

    /// Returns the order of an administrator.
    async fn order(&self) -> kube::Result<Option<PruneOrder>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(map) = maps.get_opt(names::AUDIT_PRUNE).await? else {
            return Ok(None);
        };
        let text = map.data.and_then(|mut data| data.remove(PruneOrder::KEY));
        match serde_json::from_str(&text.unwrap_or_default()) {
            Ok(order) => Ok(Some(order)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    map = names::AUDIT_PRUNE,
                    "failed to read an order to shorten the audit trail; write it with `ozctl \
                        audit prune`"
                );
                Ok(None)
            }
        }
    }

    /// Deletes the order, which shows the administrator that it is carried out.
    async fn carried_out(&self) -> kube::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        match maps
            .delete(names::AUDIT_PRUNE, &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Deletes the events of the maximum age, or from before `shortened`, and returns when the next
    /// one is due.
    async fn reap_before(
        &self,
        events: &Api<AuditEvent>,
        shortened: Option<Timestamp>,
    ) -> kube::Result<Timestamp> {
        let mut page = ListParams::default().limit(PAGE);
        let mut reaped = 0_u64;
        let next = loop {
            let list = events.list_metadata(&page).await?;
            let now = self.clock.now();
            let mut old = Vec::new();
            let mut next = None;
            for event in &list.items {
                // An object with another name is not from oz; it stays visible to users.
                let name = event.name_any();
                let Some(time) = time_in_name(&name) else {
                    continue;
                };
                let due = time.checked_add(self.keep).unwrap_or(Timestamp::MAX);
                if due > now && shortened.is_none_or(|before| time >= before) {
                    next = Some(due);
                    break;
                }
                old.push(name);
            }
            reaped += self.delete(events, &old).await?;
            if let Some(next) = next {
                break next;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                // The events of this page are deleted: the list begins later now.
                Some(_) if !old.is_empty() => page = ListParams::default().limit(PAGE),
                Some(token) => page = page.continue_token(&token),
                // A new event is kept for the full time.
                None => break now.checked_add(self.keep).unwrap_or(Timestamp::MAX),
            }
        };
        if reaped > 0 {
            tracing::debug!(reaped, %next, "deleted old AuditEvents");
        }
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

    /// Removes the checkpoints of replicas that have had no events for the same time again.
    async fn forget(&self) -> kube::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(map) = maps.get_opt(names::AUDIT_CHECKPOINTS).await? else {
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
        maps.patch(names::AUDIT_CHECKPOINTS, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }
}

/// Deletes an event, and returns whether it existed.
async fn delete(events: &Api<AuditEvent>, name: &str) -> kube::Result<bool> {
    match events.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
