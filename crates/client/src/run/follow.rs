//! A run, as it changes: by a watch, never by polling.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use oz_api::harness::HarnessRun;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::Retry;

/// The pause after a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// The result of following a run.
#[derive(Debug)]
pub enum Followed {
    /// The run reached the state that the caller wanted.
    Enough(Box<HarnessRun>),
    /// The run was deleted before; this is its last state.
    Deleted(Box<HarnessRun>),
}

/// Passes each state of a run to `each`, this one first, until `each` returns true. A transient failure during the
/// watch, such as a restart of the API server, does not end it.
///
/// # Errors
/// The run may not be watched, or the failure is permanent.
pub async fn follow(
    cluster: &Cluster,
    run: HarnessRun,
    mut each: impl FnMut(&HarnessRun) -> Result<bool>,
) -> Result<Followed> {
    if each(&run)? {
        return Ok(Followed::Enough(Box::new(run)));
    }
    let api: Api<HarnessRun> = cluster.api();
    let name = run.name_any();
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    let (mut last, mut retry) = (run, Retry::default());
    loop {
        let version = last.resource_version().unwrap_or_default();
        match api.watch(&parameters, &version).await {
            Ok(events) => {
                retry.over();
                if let Some(followed) = go_on(&mut last, events, &mut each).await? {
                    return Ok(followed);
                }
                tokio::time::sleep(WATCH_AGAIN).await;
            }
            Err(error) => match Failure::from(error) {
                // The version is too old to resume from.
                failure if failure.is_gone() => tokio::time::sleep(WATCH_AGAIN).await,
                failure => retry.with(failure).await?,
            },
        }
        // The position of the break is not known, so the current state is read first.
        match cluster.answer(api.get_opt(&name)).await {
            Ok(Some(found)) if found.uid() == last.uid() => {
                last = found;
                if each(&last)? {
                    return Ok(Followed::Enough(Box::new(last)));
                }
            }
            Ok(_) => return Ok(Followed::Deleted(Box::new(last))),
            Err(failure) => retry.with(failure).await?,
        }
    }
}

/// Returns the result of one watch, if there is one.
async fn go_on(
    last: &mut HarnessRun,
    events: impl Stream<Item = kube::Result<WatchEvent<HarnessRun>>>,
    each: &mut impl FnMut(&HarnessRun) -> Result<bool>,
) -> Result<Option<Followed>> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Added(run) | WatchEvent::Modified(run)) if run.uid() == last.uid() => {
                *last = run;
                if each(last)? {
                    return Ok(Some(Followed::Enough(Box::new(last.clone()))));
                }
            }
            Ok(WatchEvent::Deleted(run)) if run.uid() == last.uid() => {
                let enough = each(&run)?;
                let run = Box::new(run);
                return Ok(Some(match enough {
                    true => Followed::Enough(run),
                    false => Followed::Deleted(run),
                }));
            }
            // Another run with the same name.
            Ok(WatchEvent::Added(_) | WatchEvent::Modified(_)) => {
                return Ok(Some(Followed::Deleted(Box::new(last.clone()))));
            }
            Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_)) => {}
            Ok(WatchEvent::Error(_)) | Err(_) => break,
        }
    }
    Ok(None)
}
