//! Waiting for a request: a watch where that is permitted, else a look now and then.

use std::cell::Cell;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use oz_api::RequestStatus;
use oz_core::kinds::AccessRequest;
use tokio::time::Instant;

use super::retry::Retry;
use super::waits_for_others;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// Between two looks where watching is not permitted.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// After a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// How a request turned out.
pub enum Outcome<R> {
    /// It can be used.
    Ready(R),
    /// It ended without ever being ready.
    Over(R),
    /// Neither, in time.
    Late(R),
}

/// Waits until a request is ready or over. `seen` is told each status. What passes while it waits,
/// such as an API server that starts anew, ends nothing.
pub async fn wait<R: AccessRequest>(
    cluster: &Cluster,
    created: R,
    within: Duration,
    seen: impl FnMut(&RequestStatus),
) -> Result<Outcome<R>> {
    // What others take to answer does not count: they have a time of their own, and then it is over.
    let others = Cell::new(false);
    let late = async {
        loop {
            tokio::time::sleep_until(Instant::now() + within).await;
            if !others.get() {
                break;
            }
        }
    };
    let mut seen = seen;
    let seen = |status: &RequestStatus| {
        others.set(waits_for_others(status.phase, &status.conditions).is_some());
        seen(status);
    };
    let mut wait = Wait {
        api: cluster.api::<R>(),
        name: created.name_any(),
        last: created,
        seen,
        retry: Retry::default(),
    };
    let outcome = tokio::select! {
        outcome = wait.watch() => Some(outcome),
        () = late => None,
    };
    match outcome {
        Some(outcome) => outcome,
        // What it is like now is not known.
        None => match wait.retry.at_the_end() {
            Some(failure) => {
                let what = format!("request {} is not ready after {within:?}", wait.name);
                Err(failure.during(&what))
            }
            None => Ok(Outcome::Late(wait.last)),
        },
    }
}

/// A request that is waited for.
struct Wait<R, F> {
    api: Api<R>,
    name: String,
    /// What is known of it.
    last: R,
    seen: F,
    retry: Retry,
}

impl<R: AccessRequest, F: FnMut(&RequestStatus)> Wait<R, F> {
    /// Watches until the end; again, where a watch ends early or breaks.
    async fn watch(&mut self) -> Result<Outcome<R>> {
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        loop {
            let version = self.last.resource_version().unwrap_or_default();
            match self.api.watch(&parameters, &version).await {
                Ok(events) => {
                    self.retry.over();
                    if let Some(outcome) = self.follow(events).await? {
                        return Ok(outcome);
                    }
                    tokio::time::sleep(WATCH_AGAIN).await;
                }
                Err(error) => match Failure::from(error) {
                    // The original only ever needed `get`.
                    failure if failure.is_forbidden() => return self.poll().await,
                    // Too old to go on from there.
                    failure if failure.is_gone() => tokio::time::sleep(WATCH_AGAIN).await,
                    failure => self.retry.with(failure).await?,
                },
            }
            // Where it broke is not known, so what is there now is looked at first.
            if let Some(outcome) = self.look().await? {
                return Ok(outcome);
            }
        }
    }

    /// The outcome, if one watch brings it.
    async fn follow(
        &mut self,
        events: impl Stream<Item = kube::Result<WatchEvent<R>>>,
    ) -> Result<Option<Outcome<R>>> {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(request) | WatchEvent::Modified(request)) => {
                    if let Some(outcome) = self.judge(request) {
                        return Ok(Some(outcome));
                    }
                }
                Ok(WatchEvent::Deleted(_)) => return Err(deleted(&self.name)),
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(_)) | Err(_) => break,
            }
        }
        Ok(None)
    }

    async fn poll(&mut self) -> Result<Outcome<R>> {
        loop {
            if let Some(outcome) = self.look().await? {
                return Ok(outcome);
            }
            self.retry.over();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The outcome, if it is there now.
    async fn look(&mut self) -> Result<Option<Outcome<R>>> {
        loop {
            match self.api.get(&self.name).await.map_err(Failure::from) {
                Ok(request) => {
                    self.retry.eased();
                    return Ok(self.judge(request));
                }
                Err(failure) if failure.is_not_found() => return Err(deleted(&self.name)),
                Err(failure) => self.retry.with(failure).await?,
            }
        }
    }

    fn judge(&mut self, request: R) -> Option<Outcome<R>> {
        self.last = request;
        let status = self.last.status()?;
        (self.seen)(status);
        if status.phase.is_terminal() {
            return Some(Outcome::Over(self.last.clone()));
        }
        status.ready.then(|| Outcome::Ready(self.last.clone()))
    }
}

fn deleted(name: &str) -> Failure {
    Failure::new(format!(
        "request {name} was deleted while it was waited for"
    ))
    .next("ask again, or find out from the audit record who deleted it")
    .not_found()
}
