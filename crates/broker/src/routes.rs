//! The routes for pods. The broker checks the caller first, then the rate limits, then the request: it reads no byte of
//! the body of a request from an unknown caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use oz_admission::Peer;
use oz_api::Requester;
use oz_api::harness::wire::{MAX_BODY, REPORT_PATH, RUN_PATH, Report, RunAnswer};
use oz_audit::Trail;
use oz_runs::caller::{self, Caller, MAX_RECENT_EVENTS, Reason, Standing};
use oz_runs::objects::KIND;
use oz_runs::report::cleaned;
use oz_runtime::Clock;
use oz_trail::{Action, Decision, PodRef, Record, RequestRef};
use tokio::sync::Semaphore;

use crate::answer::{Refused, json};
use crate::buckets::Buckets;
use crate::callers::{Callers, Unknown};
use crate::metrics::Metrics;
use crate::reports::Reports;
use crate::runs::{Run, Runs};
use crate::write::Applied;

/// The number of requests of a pod, and of a run, in a second and at once.
const RATE: (u32, u32) = (5, 10);
/// The maximum number of pods, and of runs, with a separate limit.
const BUCKETS: usize = 8_192;
/// The maximum number of prompts and of bodies in memory, and the maximum time that a request waits for one of these
/// places.
const PROMPTS: usize = 4;
const BODIES: usize = 32;
const ROOM_WAIT: Duration = Duration::from_secs(5);
/// The maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of the HTTP server.
pub(crate) struct Broker {
    pub(crate) callers: Callers,
    pub(crate) runs: Runs,
    pub(crate) reports: Arc<Reports<Applied>>,
    pub(crate) limits: Limits,
    pub(crate) trail: Trail,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
}

/// The rate limits and the memory limits.
pub(crate) struct Limits {
    pods: Buckets<String>,
    runs: Buckets<String>,
    prompts: Semaphore,
    bodies: Semaphore,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pods: Buckets::new(RATE.0, RATE.1, BUCKETS),
            runs: Buckets::new(RATE.0, RATE.1, BUCKETS),
            prompts: Semaphore::new(PROMPTS),
            bodies: Semaphore::new(BODIES),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Run,
    Report,
}

impl Route {
    fn of(method: &Method, path: &str) -> Result<Self, Refused> {
        let (route, expected) = match path {
            RUN_PATH => (Self::Run, Method::GET),
            REPORT_PATH => (Self::Report, Method::POST),
            _ => {
                let message = format!("there is nothing here; ask for {RUN_PATH} or {REPORT_PATH}");
                return Err(Refused::new(StatusCode::NOT_FOUND, "NotFound", message));
            }
        };
        if *method == expected {
            return Ok(route);
        }
        let message = format!("{path} is asked for with {expected}");
        Err(Refused::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message,
        ))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Report => "report",
        }
    }
}

/// Returns the router.
pub(crate) fn router(broker: Arc<Broker>) -> Router {
    Router::new().fallback(answer).with_state(broker)
}

async fn answer(State(broker): State<Arc<Broker>>, request: Request) -> Response<Body> {
    let (began, version) = (Instant::now(), request.version());
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let route = Route::of(request.method(), request.uri().path());
    let answer = match &route {
        Ok(route) => broker.answer(*route, request, peer.as_deref()).await,
        Err(refused) => Err(refused.clone()),
    };
    let code = answer
        .as_ref()
        .map_or_else(|refused| refused.code, |_| "OK");
    let route = route.map_or("none", Route::name);
    broker.metrics.answered(route, code, began.elapsed());
    match answer {
        Ok(response) => response,
        Err(refused) => {
            // The broker closes the connection of a caller that has not sent a token of a run's pod.
            let ends = peer.is_some_and(|peer| peer.has_shown_no_key());
            let mut response = refused.response();
            if ends && version <= Version::HTTP_11 {
                // Otherwise the client would send its next request on a connection that is being closed.
                let headers = response.headers_mut();
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

impl Broker {
    async fn answer(
        &self,
        route: Route,
        request: Request,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, Refused> {
        let (caller, run) = self.whose(request.headers(), peer).await?;
        if let Some(peer) = peer {
            peer.has_shown_the_key();
        }
        let taken = self.limits.runs.take(&run.name.uid, Instant::now());
        taken.map_err(|wait| Refused::too_often("the run's pods ask too often", wait))?;
        match route {
            Route::Run => self.prompt(&caller, &run).await,
            Route::Report => self.report(&run, request).await,
        }
    }

    /// Returns the pod and the run of a request. Only the token decides; other content of the request does not.
    async fn whose(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<(Arc<Caller>, Run), Refused> {
        let Some(token) = bearer(headers) else {
            return Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthenticated.into(),
                "there is no token; send that which is mounted in the pod, as Authorization: Bearer",
            ));
        };
        let address = peer.map_or([0, 0, 0, 0].into(), Peer::address);
        let caller = match self.callers.identify(token, address).await {
            Ok(caller) => caller,
            Err(Unknown::Failed(refused)) => return Err(refused),
            Err(Unknown::Stranger(stranger)) => {
                let refused = Refused::from(stranger.refusal);
                if let Some(user) = stranger.user {
                    self.record(user, None, &refused);
                }
                return Err(refused);
            }
        };
        // The limit applies before any further call, and so also to pods that belong to no run.
        let taken = self.limits.pods.take(&caller.uid, Instant::now());
        taken.map_err(|wait| Refused::too_often("the pod asks too often", wait))?;
        match self.runs.find(&caller).await {
            Ok(run) => Ok((caller, run)),
            Err(refused) => {
                if refused.status == StatusCode::FORBIDDEN {
                    self.record(caller.user.clone(), Some(&caller), &refused);
                }
                Err(refused)
            }
        }
    }

    async fn prompt(&self, caller: &Caller, run: &Run) -> Result<Response<Body>, Refused> {
        let over = || Refused::from(caller::run_over(caller, &run.name.name));
        let found = match run.standing {
            Standing::Ending => Err(over()),
            Standing::Live => {
                let _room = room(&self.limits.prompts).await?;
                self.runs.prompt(caller, &run.name).await
            }
        };
        match found {
            Ok(prompt) => Ok(json(StatusCode::OK, &RunAnswer { prompt })),
            Err(refused) => {
                if refused.status == StatusCode::FORBIDDEN {
                    self.record(caller.user.clone(), Some(caller), &refused);
                }
                Err(refused)
            }
        }
    }

    /// Accepts a report. The events are written soon, and the response does not wait for the write. A pod of a run that
    /// is over may report too, as long as the pod exists: only the events are written.
    async fn report(&self, run: &Run, request: Request) -> Result<Response<Body>, Refused> {
        let _room = room(&self.limits.bodies).await?;
        let body = receive(request.into_body()).await?;
        let report: Report = serde_json::from_slice(&body).map_err(|error| {
            let message = format!(
                "the body is no report: {error}; send {{\"events\": [{{\"schemaVersion\", \"ts\", \"type\", \
                 \"summary\", \"fields\"}}]}}"
            );
            Refused::new(StatusCode::BAD_REQUEST, "BadReport", message)
        })?;
        drop(body);
        let events = cleaned(report.events, run.recent_events.min(MAX_RECENT_EVENTS));
        let events = serde_json::value::to_raw_value(&events).map_err(|error| {
            let message = format!("failed to write the events as JSON: {error}");
            Refused::new(StatusCode::BAD_REQUEST, "BadReport", message)
        })?;
        self.reports.put(&run.name, events)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// Records a refusal of a user that the API server authenticated. The refusal does not depend on the record and
    /// does not wait for it; repeated refusals are counted.
    fn record(&self, user: Requester, caller: Option<&Caller>, refused: &Refused) {
        let subject = caller.map_or(user.user.as_str(), |caller| caller.uid.as_str());
        let subject = format!("{subject} {}", refused.code);
        let mut record = Record::about(
            self.clock.now(),
            Action::RunRefused,
            Decision::Deny,
            &subject,
            refused.code,
            refused.message.clone(),
        );
        record.request = RequestRef {
            kind: KIND.to_owned(),
            ..RequestRef::default()
        };
        if let Some((namespace, _)) = user.service_account() {
            namespace.clone_into(&mut record.request.namespace);
        }
        record.pod = caller.map(|caller| PodRef {
            name: caller.pod.clone(),
            uid: caller.uid.clone(),
            container: None,
        });
        record.user = Some(user);
        self.trail.note(record);
    }
}

/// Returns the token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn room(places: &Semaphore) -> Result<tokio::sync::SemaphorePermit<'_>, Refused> {
    let room = tokio::time::timeout(ROOM_WAIT, places.acquire()).await;
    match room {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(Refused::busy("too many others are being answered")),
    }
}

async fn receive(body: Body) -> Result<axum::body::Bytes, Refused> {
    let too_large = || {
        let message = format!("the body is larger than {MAX_BODY} bytes: report fewer events");
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", message)
    };
    // By the length in the header, before the body is read.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let whole = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let message = format!("failed to receive the body: {error}");
            Err(Refused::new(StatusCode::BAD_REQUEST, "BrokenBody", message))
        }
        Err(_elapsed) => {
            let message = "the body took too long to come in";
            Err(Refused::new(
                StatusCode::REQUEST_TIMEOUT,
                "SlowBody",
                message,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_answered_for_its_method_and_nothing_else_is() {
        for (method, path, expected) in [
            (Method::GET, "/v1/run", Ok(Route::Run)),
            (Method::POST, "/v1/report", Ok(Route::Report)),
            (Method::POST, "/v1/run", Err("MethodNotAllowed")),
            (Method::GET, "/v1/report", Err("MethodNotAllowed")),
            (Method::GET, "/v1/run/", Err("NotFound")),
            (Method::GET, "/v1/runs/team/hello/prompts", Err("NotFound")),
            (Method::GET, "/", Err("NotFound")),
        ] {
            let route = Route::of(&method, path).map_err(|refused| refused.code);
            assert_eq!(route, expected, "{method} {path}");
        }
    }

    #[test]
    fn a_token_is_a_bearers() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("bearer  abc ").as_deref(), Some("abc"));
        for none in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn a_body_is_bounded_whether_its_length_is_known_or_not() {
        let whole = receive(Body::from(vec![b' '; MAX_BODY])).await;
        assert_eq!(whole.unwrap().len(), MAX_BODY);
        let long = receive(Body::from(vec![b' '; MAX_BODY + 1])).await;
        assert_eq!(long.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
