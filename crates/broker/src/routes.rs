//! The routes for pods. The broker checks the caller first, then the rate limits, then the request: it reads no byte of
//! the body of a request from an unknown caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use oz_admission::Peer;
use oz_api::Requester;
use oz_api::harness::wire::{
    CREDENTIAL_PATH, GRANTS_PATH, REPORT_PATH, RUN_PATH, Report, RunAnswer,
};
use oz_audit::Trail;
use oz_runs::caller::{self, Audience, Caller, MAX_RECENT_EVENTS, Reason, RunState};
use oz_runs::objects::KIND;
use oz_runs::report::cleaned;
use oz_runtime::Clock;
use oz_trail::{Action, Decision, PodRef, Record, RequestRef};
use tokio_util::sync::CancellationToken;

use crate::answer::{Refused, json};
use crate::callers::{Callers, Unknown};
use crate::limits::{Limits, receive, room};
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::polls::Polls;
use crate::reports::Reports;
use crate::runs::{Run, Runs};
use crate::secrets::Secrets;
use crate::write::{Applied, AppliedEgress};

/// The state of the HTTP server.
pub(crate) struct Broker {
    pub(crate) callers: Callers,
    pub(crate) runs: Runs,
    pub(crate) policies: Policies,
    pub(crate) polls: Arc<Polls>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) reports: Arc<Reports<Applied>>,
    pub(crate) egress: Arc<Reports<AppliedEgress>>,
    /// The certificate authorities (PEM) that proxies trust in addition to the public ones.
    pub(crate) certificates: String,
    /// The namespace of oz.
    pub(crate) namespace: String,
    /// Cancelled when the process ends: held requests are answered at once.
    pub(crate) stop: CancellationToken,
    pub(crate) limits: Limits,
    pub(crate) trail: Trail,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Run,
    Report,
    Grants,
    Credential,
}

impl Route {
    fn from_request(method: &Method, path: &str) -> Result<Self, Refused> {
        let (route, expected) = match path {
            RUN_PATH => (Self::Run, Method::GET),
            REPORT_PATH => (Self::Report, Method::POST),
            GRANTS_PATH => (Self::Grants, Method::GET),
            CREDENTIAL_PATH => (Self::Credential, Method::POST),
            _ => {
                let message = format!(
                    "there is no such path; use {RUN_PATH}, {REPORT_PATH}, {GRANTS_PATH} or \
                        {CREDENTIAL_PATH}"
                );
                return Err(Refused::new(StatusCode::NOT_FOUND, "NotFound", message));
            }
        };
        if *method == expected {
            return Ok(route);
        }
        let message = format!("{path} requires {expected}");
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
            Self::Grants => "grants",
            Self::Credential => "credential",
        }
    }

    /// Returns the audience of the token that the route requires; `None` for either.
    const fn audience(self) -> Option<Audience> {
        match self {
            Self::Run => Some(Audience::Reporter),
            Self::Report => None,
            Self::Grants | Self::Credential => Some(Audience::Proxy),
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
    let route = Route::from_request(request.method(), request.uri().path());
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
        // On the heap: a held request keeps nothing of what has ended before, nor room for other routes.
        let (caller, run) = Box::pin(self.whose(route, request.headers(), peer)).await?;
        if let Some(peer) = peer {
            peer.has_shown_the_key();
        }
        let rates = self.limits.rates(&caller);
        let taken = rates.runs.take(&run.name.uid, Instant::now());
        taken
            .map_err(|wait| self.limited(&caller, "the run's pods send too many requests", wait))?;
        match route {
            Route::Run => Box::pin(self.prompt(&caller, &run)).await,
            Route::Report => Box::pin(self.report(&caller, &run, request)).await,
            Route::Grants => {
                let query = request.uri().query().map(ToOwned::to_owned);
                // A request that is held for some time keeps no headers.
                drop(request);
                self.grants(&caller, run, query.as_deref()).await
            }
            Route::Credential => Box::pin(self.credential_in(&caller, &run, request)).await,
        }
    }

    /// Lends the credential that the body of a request names.
    async fn credential_in(
        &self,
        caller: &Caller,
        run: &Run,
        request: Request,
    ) -> Result<Response<Body>, Refused> {
        let body = {
            let _room = room(&self.limits.bodies).await?;
            receive(request.into_body()).await?
        };
        let _room = room(&self.limits.lends).await?;
        self.credential(caller, run, &body).await
    }

    /// Returns the pod and the run of a request. Only the token decides; other content of the request does not.
    async fn whose(
        &self,
        route: Route,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<(Arc<Caller>, Run), Refused> {
        let Some(token) = bearer(headers) else {
            return Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthenticated.into(),
                "there is no token; send the token that is mounted in the pod, as Authorization: \
                    Bearer",
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
        let taken = self
            .limits
            .rates(&caller)
            .pods
            .take(&caller.uid, Instant::now());
        taken.map_err(|wait| self.limited(&caller, "the pod sends too many requests", wait))?;
        if let Some(audience) = route.audience() {
            self.require(&caller, audience)?;
        }
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

    /// Refuses a request beyond a rate, and records it if it is of a proxy.
    fn limited(&self, caller: &Caller, what: &str, wait: Duration) -> Refused {
        let refused = Refused::too_often(what, wait);
        if caller.audience == Audience::Proxy {
            self.record(caller.user.clone(), Some(caller), &refused);
        }
        refused
    }

    /// Checks that the token is for a container, and records a request that is not.
    fn require(&self, caller: &Caller, audience: Audience) -> Result<(), Refused> {
        caller::meant_for(caller, audience).map_err(|refusal| {
            let refused = Refused::from(refusal);
            self.record(caller.user.clone(), Some(caller), &refused);
            refused
        })
    }

    async fn prompt(&self, caller: &Caller, run: &Run) -> Result<Response<Body>, Refused> {
        let over = || Refused::from(caller::run_over(caller, &run.name.name));
        let found = match run.standing {
            RunState::Ending => Err(over()),
            RunState::Live => {
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

    /// Accepts a report. The events are written soon, and the response does not wait for the write. A pod of a run
    /// that has ended may report too, as long as the pod exists: only the events are written.
    async fn report(
        &self,
        caller: &Caller,
        run: &Run,
        request: Request,
    ) -> Result<Response<Body>, Refused> {
        let _room = room(&self.limits.bodies).await?;
        let body = receive(request.into_body()).await?;
        let report: Report = serde_json::from_slice(&body).map_err(|error| {
            let message = format!(
                "the body is not a report: {error}; send {{\"events\": [{{\"schemaVersion\", \
                 \"ts\", \"type\", \"summary\", \"fields\"}}]}}, or {{\"egress\": [{{\"host\", \
                 \"port\", \"granted\", \"refused\"}}]}}"
            );
            Refused::new(StatusCode::BAD_REQUEST, "BadReport", message)
        })?;
        drop(body);
        if !report.events.is_empty() {
            self.require(caller, Audience::Reporter)?;
        }
        if !report.egress.is_empty() {
            self.require(caller, Audience::Proxy)?;
        }
        match caller.audience {
            Audience::Reporter => self.events(run, report)?,
            Audience::Proxy => self.egress(caller, run, report.egress)?,
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    fn events(&self, run: &Run, report: Report) -> Result<(), Refused> {
        let events = cleaned(report.events, run.recent_events.min(MAX_RECENT_EVENTS));
        let events = serde_json::value::to_raw_value(&events).map_err(|error| {
            let message = format!("failed to write the events as JSON: {error}");
            Refused::new(StatusCode::BAD_REQUEST, "BadReport", message)
        })?;
        self.reports.put(&run.name, events)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_answered_for_its_method_and_nothing_else_is() {
        for (method, path, expected) in [
            (Method::GET, "/v1/run", Ok(Route::Run)),
            (Method::POST, "/v1/report", Ok(Route::Report)),
            (Method::GET, "/v1/grants", Ok(Route::Grants)),
            (Method::POST, "/v1/grants", Err("MethodNotAllowed")),
            (Method::POST, "/v1/credential", Ok(Route::Credential)),
            (Method::GET, "/v1/credential", Err("MethodNotAllowed")),
            (Method::POST, "/v1/run", Err("MethodNotAllowed")),
            (Method::GET, "/v1/report", Err("MethodNotAllowed")),
            (Method::GET, "/v1/run/", Err("NotFound")),
            (Method::GET, "/v1/runs/team/hello/prompts", Err("NotFound")),
            (Method::GET, "/", Err("NotFound")),
        ] {
            let route = Route::from_request(&method, path).map_err(|refused| refused.code);
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
}
