//! AuditEvents: each record as an object in the cluster. Several are on their way at once, but none
//! is far ahead of one that has not arrived, and the first of a chain arrives alone: what a killed
//! process leaves out can be told from what somebody took away.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::PostParams;
use kube::{Api, Client};
use oz_core::api::AuditEvent;
use oz_core::audit::verify::IN_FLIGHT;
use tokio::sync::mpsc;

use super::Trail;
use super::ledger::Place;

/// How many are written at once.
const AT_ONCE: usize = 16;
/// Pauses after failures.
const SOON: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_secs(5);

/// A record to be written.
pub(super) struct Job {
    pub(super) seq: u64,
    pub(super) event: Box<AuditEvent>,
}

/// Writes what comes, until the process ends.
pub(super) async fn write(trail: Trail, client: Client, mut queue: mpsc::UnboundedReceiver<Job>) {
    let api: Api<AuditEvent> = Api::all(client);
    let mut under_way = FuturesUnordered::new();
    let mut places = std::collections::BTreeSet::new();
    let mut next: Option<Job> = None;
    loop {
        let may_start = next.as_ref().is_some_and(|job| {
            let oldest = places.first().copied().unwrap_or(job.seq);
            under_way.len() < AT_ONCE && oldest != 1 && job.seq < oldest + IN_FLIGHT
                || places.is_empty()
        });
        if may_start && let Some(job) = next.take() {
            places.insert(job.seq);
            under_way.push(create(&trail, &api, job));
        }
        tokio::select! {
            Some(seq) = under_way.next(), if !under_way.is_empty() => {
                places.remove(&seq);
                trail.arrived(seq, Place::OBJECTS);
            }
            job = queue.recv(), if next.is_none() => match job {
                Some(job) => next = Some(job),
                None => return,
            },
        }
    }
}

async fn create(trail: &Trail, api: &Api<AuditEvent>, job: Job) -> u64 {
    let mut pause = SOON;
    let mut failures = 0_u32;
    loop {
        let why = match api.create(&PostParams::default(), &job.event).await {
            Ok(_) => return job.seq,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // Ours, if an answer of the API server was lost: its name holds its digest.
                match is_there(api, &job.event).await {
                    Ok(true) => return job.seq,
                    Ok(false) => "somebody else's AuditEvent has its name".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        trail.shared.meters.failed("objects");
        if failures.is_multiple_of(20) {
            tracing::error!(
                seq = job.seq,
                why,
                "failed to write an AuditEvent; trying again"
            );
        }
        failures += 1;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LATE);
    }
}

async fn is_there(api: &Api<AuditEvent>, event: &AuditEvent) -> kube::Result<bool> {
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let found = api.get_opt(name).await?;
    Ok(found.is_some_and(|found| found.spec == event.spec))
}
