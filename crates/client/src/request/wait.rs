//! Waiting for a request: by a watch if the user has permission, else by polling.

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

/// The interval of polling if the user may not watch.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// The interval of polling for the end of a request in use.
const LOOK_FOR_END: Duration = Duration::from_secs(1);
/// The pause after a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// The outcome of a request.
pub enum Outcome<R> {
    /// The request can be used.
    Ready(R),
    /// The request ended and was never ready.
    Over(R),
    /// Neither, in time.
    Late(R),
}

/// Waits until a request is ready or over. `seen` gets each status. A transient failure during the wait, such as a
/// restart of the API server, does not end it.
pub async fn wait<R: AccessRequest>(
    cluster: &Cluster,
    created: R,
    within: Duration,
    seen: impl FnMut(&RequestStatus),
) -> Result<Outcome<R>> {
    // The time that approvers take does not count: it has a separate limit, after which the request is over.
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
        goal: Goal::Ready,
        seen,
        retry: Retry::default(),
    };
    let outcome = tokio::select! {
        outcome = wait.watch() => Some(outcome),
        () = late => None,
    };
    match outcome {
        Some(outcome) => outcome,
        // The current state is not known.
        None => match wait.retry.at_the_end() {
            Some(failure) => {
                let what = format!("request {} is not ready after {within:?}", wait.name);
                Err(failure.during(&what))
            }
            None => Ok(Outcome::Late(wait.last)),
        },
    }
}

/// Waits until a request in use ends. Returns its last status, or `None` if it is deleted or being deleted.
///
/// # Errors
/// The user may not read the request.
pub async fn end<R: AccessRequest>(cluster: &Cluster, name: &str) -> Result<Option<RequestStatus>> {
    let api = cluster.api::<R>();
    let mut retry = Retry::default();
    let current = loop {
        match api.get(name).await.map_err(Failure::from) {
            Ok(current) => break current,
            Err(failure) if failure.is_not_found() => return Ok(None),
            Err(failure) => retry.with(failure).await?,
        }
    };
    let mut wait = Wait {
        api,
        name: name.to_owned(),
        last: current.clone(),
        goal: Goal::End,
        seen: |_: &RequestStatus| {},
        retry,
    };
    let outcome = match wait.judge(current) {
        Some(outcome) => Ok(outcome),
        None => wait.watch().await,
    };
    match outcome {
        Ok(Outcome::Ready(request) | Outcome::Over(request) | Outcome::Late(request)) => {
            let deleted = request.meta().deletion_timestamp.is_some();
            Ok(request.status().filter(|_| !deleted).cloned())
        }
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The state that a wait is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// The request can be used, or has ended.
    Ready,
    /// The request has ended, or is being deleted.
    End,
}

/// A wait for a request.
struct Wait<R, F> {
    api: Api<R>,
    name: String,
    /// The last known state.
    last: R,
    goal: Goal,
    seen: F,
    retry: Retry,
}

impl<R: AccessRequest, F: FnMut(&RequestStatus)> Wait<R, F> {
    /// Watches until the outcome; watches again if a watch ends early or breaks.
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
                    // The original only ever required `get`.
                    failure if failure.is_forbidden() => return self.poll().await,
                    // The version is too old to resume from.
                    failure if failure.is_gone() => tokio::time::sleep(WATCH_AGAIN).await,
                    failure => self.retry.with(failure).await?,
                },
            }
            // The position of the break is not known, so the current state is read first.
            if let Some(outcome) = self.look().await? {
                return Ok(outcome);
            }
        }
    }

    /// Returns the outcome, if one watch delivers it.
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
            let pause = match self.goal {
                Goal::Ready => LOOK_AGAIN,
                Goal::End => LOOK_FOR_END,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns the outcome, if the request has one now.
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
        if self.goal == Goal::End && self.last.meta().deletion_timestamp.is_some() {
            return Some(Outcome::Over(self.last.clone()));
        }
        let status = self.last.status()?;
        (self.seen)(status);
        if status.phase.is_terminal() {
            return Some(Outcome::Over(self.last.clone()));
        }
        let is_reached = self.goal == Goal::Ready && status.ready;
        is_reached.then(|| Outcome::Ready(self.last.clone()))
    }
}

fn deleted(name: &str) -> Failure {
    Failure::new(format!(
        "request {name} was deleted while it was waited for"
    ))
    .next("create it again, or find the user who deleted it in the audit trail")
    .not_found()
}
