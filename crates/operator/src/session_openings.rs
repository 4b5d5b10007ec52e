//! The start times of the sessions of grants, from the audit records in the cluster. Many grants
//! that end together share one query: the API server searches all records for each query.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use oz_api::labels;
use oz_trail::{Action, AuditEvent, Record};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The timeout of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of grants in one query.
const GRANTS_AT_ONCE: usize = 40;
/// The maximum number of records that one query reads.
const RECORDS_AT_ONCE: u32 = 500;

/// The lookup of sessions. Cheap to clone; clones share their queries.
#[derive(Clone)]
pub(crate) struct Openings {
    client: Client,
    /// The runtime that waits for responses.
    runtime: Handle,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    grants: Vec<(String, oneshot::Sender<Vec<Record>>)>,
    asks: bool,
}

impl Openings {
    /// Creates the lookup. The caller must be in the runtime that waits for responses.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            runtime: Handle::current(),
            waiting: Arc::default(),
        }
    }

    /// Returns the audit records of the sessions of a grant: of their opening, cut, or end. Empty
    /// if they cannot be read.
    pub(crate) async fn list_for_grant(&self, grant: &str) -> Vec<Record> {
        let (done, found) = oneshot::channel();
        let begins = {
            let mut waiting = self.waiting();
            waiting.grants.push((labels::value(grant), done));
            !std::mem::replace(&mut waiting.asks, true)
        };
        if begins {
            let this = self.clone();
            self.runtime.spawn(async move { this.ask().await });
        }
        found.await.into_iter().flatten().collect()
    }

    /// Sends queries until no caller waits.
    async fn ask(&self) {
        while let Some(batch) = self.next() {
            let grants: Vec<&str> = batch.iter().map(|(grant, _)| grant.as_str()).collect();
            let mut found = match self.list(&grants).await {
                Some((found, true)) => found,
                // One grant has more records than are read: it must not hide those of the others.
                Some((_, false)) if grants.len() > 1 => {
                    let mut found = BTreeMap::new();
                    for grant in &grants {
                        let one = self.list(&[grant]).await;
                        found.extend(one.into_iter().flat_map(|(found, _)| found));
                    }
                    found
                }
                Some((found, false)) => found,
                None => BTreeMap::new(),
            };
            for (grant, done) in batch {
                let records = found.remove(&grant).into_iter().flatten();
                let _ = done.send(records.collect());
            }
        }
    }

    fn next(&self) -> Option<Vec<(String, oneshot::Sender<Vec<Record>>)>> {
        let mut waiting = self.waiting();
        let count = waiting.grants.len().min(GRANTS_AT_ONCE);
        waiting.asks = count > 0;
        (count > 0).then(|| waiting.grants.drain(..count).collect())
    }

    /// Returns the records by the label of their grant, and whether the list is complete.
    async fn list(&self, grants: &[&str]) -> Option<(BTreeMap<String, Vec<Record>>, bool)> {
        let events: Api<AuditEvent> = Api::all(self.client.clone());
        let selector = format!(
            "{} in ({}),{} in ({},{},{})",
            labels::AUDIT_GRANT,
            grants.join(","),
            labels::AUDIT_KIND,
            Action::SessionOpened,
            Action::SessionTerminated,
            Action::SessionEnded,
        );
        let parameters = ListParams::default()
            .labels(&selector)
            .limit(RECORDS_AT_ONCE);
        let list = match tokio::time::timeout(LIST_TIMEOUT, events.list(&parameters)).await {
            Ok(Ok(list)) => list,
            // The sessions are ended in any case; only their duration is not recorded.
            Ok(Err(error)) => {
                tracing::info!(%error, "failed to look up which sessions were opened");
                return None;
            }
            Err(_) => return None,
        };
        let all = list.metadata.continue_.is_none_or(|token| token.is_empty());
        let mut found: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for event in list.items {
            let marks = event.metadata.labels;
            if let Some(grant) = marks.and_then(|mut marks| marks.remove(labels::AUDIT_GRANT)) {
                found.entry(grant).or_default().push(event.spec.record);
            }
        }
        Some((found, all))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}
