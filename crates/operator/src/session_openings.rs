//! When the sessions of grants were opened, as far as that is on record in the cluster. Many grants that
//! end together are asked for together: the API server looks through all records for each question.

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

/// How long the API server may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How many grants are asked for at once.
const GRANTS_AT_ONCE: usize = 40;
/// How many records are read of those that are asked for at once.
const RECORDS_AT_ONCE: u32 = 500;

/// Looks up sessions. Cheap to clone; clones ask together.
#[derive(Clone)]
pub(crate) struct Openings {
    client: Client,
    /// Where answers are waited for.
    runtime: Handle,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    grants: Vec<(String, oneshot::Sender<Vec<Record>>)>,
    asks: bool,
}

impl Openings {
    /// To be called in the runtime that is to wait for answers.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            runtime: Handle::current(),
            waiting: Arc::default(),
        }
    }

    /// The records of the sessions of a grant: that they were opened, cut, or ended. None if they
    /// cannot be read.
    pub(crate) async fn of(&self, grant: &str) -> Vec<Record> {
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
        found.await.unwrap_or_default()
    }

    /// Asks until nobody waits any more.
    async fn ask(&self) {
        while let Some(batch) = self.next() {
            let grants: Vec<&str> = batch.iter().map(|(grant, _)| grant.as_str()).collect();
            let mut found = match self.list(&grants).await {
                Some((found, true)) => found,
                // One of them has more than is read: it must not hide what the others have.
                Some((_, false)) if grants.len() > 1 => {
                    let mut found = BTreeMap::new();
                    for grant in &grants {
                        let one = self.list(&[grant]).await;
                        found.extend(one.map(|(found, _)| found).unwrap_or_default());
                    }
                    found
                }
                Some((found, false)) => found,
                None => BTreeMap::new(),
            };
            for (grant, done) in batch {
                let _ = done.send(found.remove(&grant).unwrap_or_default());
            }
        }
    }

    fn next(&self) -> Option<Vec<(String, oneshot::Sender<Vec<Record>>)>> {
        let mut waiting = self.waiting();
        let count = waiting.grants.len().min(GRANTS_AT_ONCE);
        waiting.asks = count > 0;
        (count > 0).then(|| waiting.grants.drain(..count).collect())
    }

    /// The records by the label of their grant, and whether these are all.
    async fn list(&self, grants: &[&str]) -> Option<(BTreeMap<String, Vec<Record>>, bool)> {
        let events: Api<AuditEvent> = Api::all(self.client.clone());
        let selector = format!(
            "{} in ({}),{} in ({},{},{})",
            labels::AUDIT_GRANT,
            grants.join(","),
            labels::AUDIT_KIND,
            Action::SessionOpened,
            Action::SessionCut,
            Action::SessionEnded,
        );
        let parameters = ListParams::default()
            .labels(&selector)
            .limit(RECORDS_AT_ONCE);
        let list = match tokio::time::timeout(LIST_TIMEOUT, events.list(&parameters)).await {
            Ok(Ok(list)) => list,
            // They are ended all the same; only how long they lasted is not said.
            Ok(Err(error)) => {
                tracing::info!(%error, "failed to look up which sessions were opened");
                return None;
            }
            Err(_) => return None,
        };
        let all = list.metadata.continue_.is_none_or(|token| token.is_empty());
        let mut found: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for event in list.items {
            let marks = event.metadata.labels.unwrap_or_default();
            if let Some(grant) = marks.get(labels::AUDIT_GRANT) {
                found
                    .entry(grant.clone())
                    .or_default()
                    .push(event.spec.record);
            }
        }
        Some((found, all))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}
