//! The review of one call, from bytes to bytes: find the hook, decode, call it, respond.
//!
//! The module uses neither sockets nor HTTP types except the status: tests and fuzzers call it directly.

use std::{
    collections::HashMap,
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;
use oz_runtime::{Clock, Recorder, with_causes};

use crate::{
    caller::{Caller, KnownCallers, limited},
    decode::{DECODE_FAILED, UNEXPECTED_KIND},
    handler::check_kind,
    hook::{FailurePolicy, Hook},
    lean::{self, Lean},
    metrics::{Metrics, Verdict},
    review::Cx,
    server::{
        Limits,
        capacity::{Capacities, Room, Share},
        conversions::{self, Conversions},
    },
    verdict::{Notes, Rejection},
    wire::{self, Answer, Request},
};

/// The HTTP response of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP status: 200 for every completed review, whether allowed or denied.
    pub status: u16,
    /// The body: an `AdmissionReview` if the status is 200, plain text otherwise.
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            body: message.into().into_bytes(),
        }
    }

    pub(super) fn too_many() -> Self {
        Self::text(429, "too many reviews at once; try again in a second")
    }

    pub(super) fn too_late() -> Self {
        Self::text(503, "the review took too long to arrive; try again")
    }
}

struct Served {
    hook: Hook,
    name: Arc<str>,
    /// The time limit, a little before the timeout of the API server, so that it gets a response.
    limit: Duration,
    /// The time for which a review waits for each kind of memory, so that a third is left for the decision.
    wait: Duration,
}

/// The arrival of a call, and the time limit of its response. The API server shows its users the whole URL
/// of a call that times out, so it must get any response before its timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    at: tokio::time::Instant,
    limit: Duration,
}

impl Arrival {
    fn new(limit: Duration) -> Self {
        Self {
            at: tokio::time::Instant::now(),
            limit,
        }
    }

    /// Returns the remaining time, but at most `most`.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        most.min(self.limit.saturating_sub(self.at.elapsed()))
    }
}

/// The settings of a manager for its callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerTerms {
    pub(crate) known: KnownCallers,
    /// True if handlers vouch for callers: callers for which no handler vouched are confined.
    pub(crate) confined: bool,
}

/// The reviewer of calls.
pub(crate) struct Reviewer {
    hooks: HashMap<String, Served>,
    client: kube::Client,
    /// The client of unproven callers.
    unproven_client: kube::Client,
    callers: CallerTerms,
    fingerprint: Arc<str>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    metrics: Metrics,
    capacities: Capacities,
    pub(super) conversions: Conversions,
}

impl Reviewer {
    pub(crate) fn new(
        hooks: &[Hook],
        client: kube::Client,
        fingerprint: Arc<str>,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
        metrics: Metrics,
        limits: &Limits,
    ) -> Self {
        let served = |hook: &Hook| Served {
            name: hook.name.as_str().into(),
            limit: hook.timeout.mul_f64(0.9),
            wait: hook.timeout / 3,
            hook: hook.clone(),
        };
        Self {
            hooks: hooks
                .iter()
                .map(|hook| (hook.served_path(), served(hook)))
                .collect(),
            unproven_client: client.clone(),
            client,
            callers: CallerTerms::default(),
            fingerprint,
            clock,
            recorder,
            metrics,
            capacities: Capacities::new(limits),
            conversions: Conversions::new(&[], limits),
        }
    }

    /// Sets the conversions.
    pub(crate) fn converting(self, conversions: Conversions) -> Self {
        Self {
            conversions,
            ..self
        }
    }

    /// Sets the settings for callers.
    pub(crate) fn telling_apart(self, callers: CallerTerms) -> Self {
        let unproven_client = if callers.confined {
            limited(&self.client)
        } else {
            self.client.clone()
        };
        Self {
            unproven_client,
            callers,
            ..self
        }
    }

    /// Returns a context outside any review.
    pub(crate) fn cx(&self) -> Cx {
        Cx {
            client: self.client.clone(),
            fingerprint: self.fingerprint.clone(),
            now: self.clock.now(),
            dry_run: false,
            caller: Caller::Local,
            callers: self.callers.known.clone(),
            recorder: self.recorder.clone(),
        }
    }

    /// Returns the caller of a connection from this address.
    pub(crate) fn caller(&self, address: IpAddr, certified: bool) -> Caller {
        if certified {
            return Caller::Certified(address.to_canonical());
        }
        self.callers.known.identify(address, self.clock.now())
    }

    /// Checks whether the caller has less capacity than others.
    pub(crate) fn confines(&self, caller: Caller) -> bool {
        self.callers.confined && !caller.is_proven()
    }

    /// Creates the arrival of a call of this path, which begins now.
    pub(crate) fn arrival(&self, path: &str) -> Arrival {
        let limit = self.hooks.get(path).map(|served| served.limit);
        Arrival::new(limit.unwrap_or(conversions::LIMIT))
    }

    /// Checks whether there is a hook or a conversion at this path.
    pub(crate) fn serves(&self, path: &str) -> bool {
        self.hooks.contains_key(path) || self.conversions.find_by_path(path).is_some()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes memory for a body of this size for the hook or conversion at this path.
    ///
    /// # Errors
    /// The response if there is no memory.
    pub(crate) async fn admit(
        &self,
        path: &str,
        bytes: usize,
        caller: Caller,
        arrival: Arrival,
    ) -> Result<Room<'_>, Reply> {
        if self.conversions.find_by_path(path).is_some() {
            let wait = arrival.left(conversions::WAIT);
            let room = self.conversions.share().body(bytes, wait).await;
            return room.ok_or_else(|| self.too_many_conversions());
        }
        let Some(served) = self.hooks.get(path) else {
            return Err(self.not_found(path));
        };
        let wait = arrival.left(served.wait);
        let room = self.share(served, caller).body(bytes, wait).await;
        room.ok_or_else(|| self.overload(served))
    }

    fn share(&self, served: &Served, caller: Caller) -> Share<'_> {
        let policy = served.hook.effective_failure();
        self.capacities.share(policy, caller, self.callers.confined)
    }

    fn not_found(&self, path: &str) -> Reply {
        self.metrics.refused("unknown_path");
        Reply::text(404, format!("failed to find a hook at {path}"))
    }

    fn overload(&self, served: &Served) -> Reply {
        // The API server may process a request without a hook that fails open.
        self.metrics.refused(match served.hook.effective_failure() {
            FailurePolicy::Fail => "overload",
            FailurePolicy::Ignore => "overload_open",
        });
        Reply::too_many()
    }

    /// Answers one call.
    pub(crate) async fn review(
        &self,
        path: &str,
        body: &[u8],
        caller: Caller,
        arrival: Arrival,
    ) -> Reply {
        let started = Instant::now();
        if let Some(conversion) = self.conversions.find_by_path(path) {
            return self.convert(conversion, body, arrival).await;
        }
        let Some(served) = self.hooks.get(path) else {
            return self.not_found(path);
        };
        let share = self.share(served, caller);
        let Some(_place) = share.begin(arrival.left(served.wait)).await else {
            return self.overload(served);
        };
        let request = match wire::read(body) {
            Ok(request) => request,
            Err(error) => {
                self.metrics.refused("malformed");
                return Reply::text(400, with_causes(&error));
            }
        };
        let lean = Lean::from_request(&request);
        let request = lean.request(request);
        let cost = lean::cost(&request, served.hook.kind);
        let wait = arrival.left(served.wait);
        let Some(_kept) = share.objects(cost, wait).await else {
            return self.overload(served);
        };
        let client = match self.confines(caller) {
            true => &self.unproven_client,
            false => &self.client,
        };
        let cx = Cx {
            client: client.clone(),
            dry_run: request.dry_run.unwrap_or(false),
            caller,
            ..self.cx()
        };
        let called = call(served, &cx, &request, arrival);
        let (mut answer, mut verdict) = caller.during(called).await;
        if served.hook.monitor {
            (answer, verdict) = monitored(served, answer, verdict);
        }
        self.metrics
            .reviewed(&served.name, request.operation, verdict, started.elapsed());
        match wire::write(&request.uid, &answer) {
            Ok(body) => Reply { status: 200, body },
            Err(error) => Reply::text(500, format!("failed to write the response: {error}")),
        }
    }
}

async fn call(
    served: &Served,
    cx: &Cx,
    request: &Request<'_>,
    arrival: Arrival,
) -> (Answer, Verdict) {
    if let Err(rejection) = check_kind(served.hook.expected.as_ref(), request) {
        return (Answer::Denied(rejection), Verdict::Undecodable);
    }
    // After a panic, the state is as after a crash of the extension: no data of the review outlives it, and
    // the extension guards its own shared state.
    let handling = AssertUnwindSafe(served.hook.handler.handle(cx, request)).catch_unwind();
    match tokio::time::timeout(arrival.left(served.limit), handling).await {
        Ok(Ok(Answer::Denied(rejection))) if rejection.is_undecided() => {
            (undecided(served, rejection), Verdict::Undecided)
        }
        Ok(Ok(answer)) => {
            let verdict = verdict(&answer);
            (answer, verdict)
        }
        Ok(Err(_panic)) => {
            tracing::error!(hook = %served.name, uid = request.uid, "the extension panicked");
            (
                failed(served, "ExtensionPanicked", "panicked"),
                Verdict::Panicked,
            )
        }
        Err(_elapsed) => {
            tracing::error!(hook = %served.name, uid = request.uid, "the extension took too long");
            (
                failed(served, "ExtensionTimedOut", "took too long"),
                Verdict::TimedOut,
            )
        }
    }
}

fn verdict(answer: &Answer) -> Verdict {
    match answer {
        Answer::Allowed {
            patch: Some(patch), ..
        } if !patch.0.is_empty() => Verdict::Patched,
        Answer::Allowed { .. } => Verdict::Allowed,
        Answer::Denied(rejection)
            if rejection.reason == DECODE_FAILED || rejection.reason == UNEXPECTED_KIND =>
        {
            Verdict::Undecodable
        }
        Answer::Denied(_) => Verdict::Denied,
    }
}

/// Returns the response of the failure policy if there is no decision.
fn undecided(served: &Served, rejection: Rejection) -> Answer {
    match served.hook.effective_failure() {
        FailurePolicy::Fail => Answer::Denied(rejection),
        FailurePolicy::Ignore => Answer::Allowed {
            patch: None,
            notes: Notes {
                warnings: [
                    rejection.warnings(),
                    std::slice::from_ref(&rejection.message),
                ]
                .concat(),
                audit: rejection.audit,
            }
            .annotate("failure", rejection.reason),
        },
    }
}

/// Returns the response of a monitoring hook: the API server processes the request unchanged, and the audit
/// event and the metrics report the decision.
fn monitored(served: &Served, answer: Answer, verdict: Verdict) -> (Answer, Verdict) {
    let (would, verdict) = match &answer {
        Answer::Denied(rejection) => {
            tracing::info!(hook = %served.name, %rejection, "would have refused");
            (Some(format!("deny: {rejection}")), Verdict::WouldDeny)
        }
        Answer::Allowed {
            patch: Some(patch), ..
        } if !patch.0.is_empty() => {
            let paths: Vec<_> = patch.0.iter().map(|it| it.path().to_string()).collect();
            (
                Some(format!("patch: {}", paths.join(" "))),
                Verdict::WouldPatch,
            )
        }
        Answer::Allowed { .. } => (None, verdict),
    };
    let notes = match answer {
        Answer::Denied(rejection) => Notes {
            warnings: Vec::new(),
            audit: rejection.audit,
        },
        Answer::Allowed { notes, .. } => Notes {
            warnings: Vec::new(),
            ..notes
        },
    };
    let notes = match would {
        Some(would) => notes.annotate("monitor", would),
        None => notes,
    };
    (Answer::Allowed { patch: None, notes }, verdict)
}

/// Returns the response of the failure policy. The API server would apply the policy too, but could not
/// report the reason to the user.
fn failed(served: &Served, reason: &'static str, what: &str) -> Answer {
    let message = format!("the extension {} {what}; see its log", served.name);
    match served.hook.effective_failure() {
        FailurePolicy::Fail => Answer::Denied(Rejection::new(500, reason, message)),
        FailurePolicy::Ignore => Answer::Allowed {
            patch: None,
            notes: Notes::none().warn(message).annotate("failure", reason),
        },
    }
}
