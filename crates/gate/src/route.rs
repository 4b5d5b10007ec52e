//! The HTTP server of the gate, and the route of a request by its path: to the stages of a request to a pod, to open
//! sessions, or to recordings.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONNECTION};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use oz_admission::Peer;
use oz_api::Requester;
use oz_gating::live;
use oz_gating::live::Live as LivePath;
use oz_gating::path::{self, Path, Recordings as RecordingsPath, Rest};

use crate::answer::Refused;
use crate::authenticate::{Authenticator, Caller, target};
use crate::authorize::Authorizer;
use crate::live::LiveSessions;
use crate::metrics::Metrics;
use crate::open::Opener;
use crate::play::Playback;
use crate::sessions::Sessions;
use crate::{debug, discovery};

/// The stages of a request.
pub(crate) struct Stages {
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) opener: Arc<Opener>,
    pub(crate) live: LiveSessions,
    pub(crate) playback: Playback,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) metrics: Metrics,
}

/// The subject of a request of a user.
enum Route {
    /// Open sessions.
    Live(LivePath),
    /// Recordings.
    Recordings(RecordingsPath),
    /// A pod, or the discovery of what the gate passes on.
    Pod(Path),
}

impl Route {
    /// Reads the path of a request.
    fn read(request: &Request) -> Result<Self, Refused> {
        let uri = request.uri();
        if let Some(asked) = live::read(uri.path()) {
            return Ok(Self::Live(asked));
        }
        if let Some(asked) = path::read_recordings(uri.path()) {
            return Ok(Self::Recordings(asked));
        }
        let path = path::read(request.method().as_str(), uri.path(), uri.query());
        Ok(Self::Pod(path?))
    }

    /// Returns the operation, for metrics.
    fn title(&self) -> &'static str {
        match self {
            Self::Live(_) => "live",
            Self::Recordings(_) => "recordings",
            Self::Pod(path) => path.rest.title(),
        }
    }
}

/// Creates the routes.
pub(crate) fn router(stages: Arc<Stages>) -> Router {
    Router::new().fallback(answer).with_state(stages)
}

async fn answer(State(stages): State<Arc<Stages>>, request: Request) -> Response<Body> {
    let mut response = stages.answer(request).await;
    if stages.sessions.are_ending() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // A connection that is kept would bring what comes next here as well.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

impl Stages {
    async fn answer(&self, request: Request) -> Response<Body> {
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let caller = match self.authenticator.authenticate(&request) {
            Ok(caller) => caller,
            Err(refused) => {
                self.metrics.answered("unknown", refused.reason);
                if let Some(peer) = peer {
                    peer.has_shown_no_key();
                }
                return refused.response();
            }
        };
        if let Some(peer) = peer {
            peer.has_shown_the_key();
        }
        if let Some(refused) = discovery::not_described(request.uri().path()) {
            self.metrics.answered("openapi", refused.reason);
            return refused.response();
        }
        let group =
            discovery::of_the_group(request.method(), request.uri().path(), request.headers());
        if let Some(answered) = group {
            self.metrics.answered("group", "OK");
            return answered;
        }
        let discovers = discovers(request.headers());
        let user = caller.user.user.clone();
        let (what, answered) = self.route(caller, request).await;
        match answered {
            Ok(response) => {
                self.metrics.answered(what, "OK");
                response
            }
            Err(refused) => {
                self.metrics.answered(what, refused.reason);
                tracing::info!(?user, what, reason = refused.reason, "refused");
                match discovers {
                    true => refused.text(),
                    false => refused.response(),
                }
            }
        }
    }

    /// Sends a request to its stages; returns its operation as well.
    async fn route(
        &self,
        caller: Caller,
        request: Request,
    ) -> (&'static str, Result<Response<Body>, Refused>) {
        let route = Route::read(&request);
        if caller.is_replica && !matches!(route, Ok(Route::Live(_))) {
            // A peer token is valid for nothing else; checked once more where it would matter.
            let why = "a peer token permits requests about open sessions only";
            return ("none", Err(Refused::unknown(why)));
        }
        let route = match route {
            Ok(route) => route,
            Err(refused) => return ("none", Err(refused)),
        };
        let what = route.title();
        let answered = match route {
            Route::Live(asked) => {
                let (method, target) = (request.method().clone(), target(&request).to_owned());
                self.live.answer(&caller, &asked, &method, &target).await
            }
            Route::Recordings(asked) => {
                let user = &caller.user;
                self.playback.answer(user, &asked, request.method()).await
            }
            Route::Pod(path) => self.pass(caller.user, &path, request).await,
        };
        (what, answered)
    }

    /// Passes on a permitted request.
    async fn pass(
        &self,
        user: Requester,
        path: &Path,
        request: Request,
    ) -> Result<Response<Body>, Refused> {
        let granted = self.authorizer.authorize(&user, path)?;
        let found = match &path.rest {
            Rest::Versions => discovery::core_versions(),
            Rest::Groups => discovery::no_groups(),
            Rest::Resources => discovery::core_resources(),
            rest if rest.adds() => {
                let (parts, patch) = debug::patch_of(request).await?;
                let grant = &granted.grant;
                let added = self
                    .authorizer
                    .add_container(&user, path, grant, &parts, &patch);
                return added.await;
            }
            Rest::Pod { .. } | Rest::Listed { .. } => {
                return self.opener.open(user, path, granted.grant, request).await;
            }
        };
        discovery::discovered(request.headers(), &found)
    }
}

/// Checks whether the request is from a client that discovers kinds: it prints the response as text, and does not
/// decode a Status there.
fn discovers(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|value| {
        value
            .to_str()
            .is_ok_and(|text| text.contains("as=APIGroupDiscoveryList"))
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{HeaderMap, HeaderValue};

    /// Returns headers with these names and values.
    pub(crate) fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }
}
