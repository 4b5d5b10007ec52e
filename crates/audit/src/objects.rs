//! AuditEvents: each record as an object in the cluster. Several are written at once, but none is far ahead of one that
//! has not arrived, and none is written before all earlier signed records have arrived, such as the first record of a
//! chain. Thus a verifier can distinguish the records that a killed process left out from those that an attacker
//! removed or added.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use oz_trail::AuditEvent;
use oz_trail::verify::IN_FLIGHT;
use tokio::sync::mpsc;

use crate::Trail;
use crate::outlets::{Intake, Outlet, Written};

/// The maximum number of records that are written at once.
const AT_ONCE: usize = 16;
/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_secs(5);
/// The number of attempts for a record that the API server rejects as invalid: half a minute, in which an administrator
/// who upgrades oz may have replaced the definition of AuditEvents.
const HOPELESS: u32 = 10;

/// A record to be written.
pub(crate) struct Job {
    pub(crate) seq: u64,
    pub(crate) event: Box<AuditEvent>,
}

/// The intake of the outlet.
pub(crate) struct Jobs(pub(crate) mpsc::UnboundedSender<Job>);

impl Intake for Jobs {
    fn record(&self, written: &Written) -> u64 {
        let seq = written.entry.link.seq;
        let event = Box::new(written.entry.clone().into());
        // The task ends only with the process.
        let _ = self.0.send(Job { seq, event });
        0
    }
}

/// Writes records until the process ends.
pub(crate) async fn write(trail: Trail, client: Client, mut queue: mpsc::UnboundedReceiver<Job>) {
    let api: Api<AuditEvent> = Api::all(client);
    let mut under_way = FuturesUnordered::new();
    // The positions in progress, and whether the record at each is signed.
    let mut places = std::collections::BTreeMap::new();
    let mut next: Option<Job> = None;
    loop {
        let may_start = next.as_ref().is_some_and(|job| {
            let oldest = places.keys().next().copied().unwrap_or(job.seq);
            under_way.len() < AT_ONCE
                && job.seq < oldest + IN_FLIGHT
                && !places.values().any(|signed| *signed)
        });
        if may_start && let Some(job) = next.take() {
            places.insert(job.seq, job.event.spec.link.signature.is_some());
            under_way.push(create(&trail, &api, job));
        }
        tokio::select! {
            Some((seq, taken)) = under_way.next(), if !under_way.is_empty() => {
                places.remove(&seq);
                if taken {
                    trail.arrived(seq, Outlet::Objects);
                } else {
                    trail.lost(seq, Outlet::Objects);
                }
            }
            job = queue.recv(), if next.is_none() => match job {
                Some(job) => next = Some(job),
                None => return,
            },
        }
    }
}

/// Creates one object. Returns its position, and whether the API server accepted it. A record that the cluster will
/// never accept is given up: all later records would wait for it, and no user would get access any more.
async fn create(trail: &Trail, api: &Api<AuditEvent>, job: Job) -> (u64, bool) {
    let mut pause = FIRST_PAUSE;
    let (mut failures, mut hopeless) = (0_u32, 0);
    loop {
        let why = match api.create(&PostParams::default(), &job.event).await {
            Ok(_) => return (job.seq, true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // The object is the same if a response of the API server was lost: its name contains its digest.
                match is_there(api, &job.event).await {
                    Ok(true) => return (job.seq, true),
                    Ok(false) => "another client's AuditEvent has its name".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            Err(kube::Error::Api(status)) if is_hopeless(&status) => {
                hopeless += 1;
                status.message
            }
            Err(error) => error.to_string(),
        };
        trail.shared.meters.failed("objects");
        if hopeless == HOPELESS {
            tracing::error!(
                seq = job.seq,
                why,
                "gave up an AuditEvent: the cluster does not accept it, and verification will \
                    report it missing"
            );
            return (job.seq, false);
        }
        if failures.is_multiple_of(20) {
            tracing::error!(
                seq = job.seq,
                why,
                "failed to write an AuditEvent; retrying"
            );
        }
        failures += 1;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LATE);
    }
}

/// Checks whether the API server would repeat the response: the object is too large, or not an AuditEvent as this
/// cluster defines it.
fn is_hopeless(status: &Status) -> bool {
    matches!(status.code, 400 | 413 | 422) || status.message.contains("request is too large")
}

async fn is_there(api: &Api<AuditEvent>, event: &AuditEvent) -> kube::Result<bool> {
    let Some(name) = event.metadata.name.as_deref() else {
        return Ok(false);
    };
    let found = api.get_opt(name).await?;
    Ok(found.is_some_and(|found| found.spec == event.spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_never_be_stored_is_given_up() {
        for (code, message, hopeless) in [
            (413, "Request entity too large: limit is 3145728", true),
            (422, "spec.action: Unsupported value", true),
            (400, "strict decoding error", true),
            (500, "etcdserver: request is too large", true),
            (500, "etcdserver: request timed out", false),
            (403, "auditevents is forbidden", false),
            (
                404,
                "the server could not find the requested resource",
                false,
            ),
            (429, "too many requests", false),
            (503, "unavailable", false),
        ] {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(is_hopeless(&status), hopeless, "{code} {message}");
        }
    }
}
