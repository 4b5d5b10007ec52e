//! The opening of a request that is authorized: the request to the API server, and, for a session, its registration and
//! its recording before that.

mod direct;
mod request;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use oz_api::Requester;
use oz_core::access::grant::Grant;
use oz_gating::path::Path;
use oz_gating::recording::SessionKey;
use oz_gating::upgrade::Upgrade;

use crate::answer::Refused;
use crate::authorize::Authorizer;
use crate::handshake::values;
use crate::idle::Idle;
use crate::journal::Journal;
use crate::live::{Opened, Register};
use crate::moderated::Moderation;
use crate::recordings::{self, Opening, Plan, Recordings};
use crate::relay::followed;
use crate::session::{Registered, Session};
use crate::sessions::{Sessions, Slot};
use crate::upstream::{head, whole};

/// The opener of the [module](self).
pub(crate) struct Opener {
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) register: Arc<Register>,
    /// The storage of recordings, if there is one.
    pub(crate) recordings: Option<Recordings>,
    pub(crate) journal: Journal,
    /// The name of this replica, for the names of sessions.
    pub(crate) replica: String,
    pub(crate) next: AtomicU64,
}

/// The user and the grant of a request.
struct Entrant {
    user: Requester,
    grant: Arc<Grant>,
}

impl Opener {
    /// Passes on a request to a pod, or opens its session.
    pub(crate) async fn open(
        self: &Arc<Self>,
        user: Requester,
        path: &Path,
        grant: Arc<Grant>,
        mut request: Request,
    ) -> Result<Response<Body>, Refused> {
        // Whatever it is, nobody reads it; and its length could be read in two ways.
        bodiless(request.headers())?;
        let asked = Upgrade::read(|name| values(request.headers(), name))?;
        let asked = asked.map(|asked| (asked, hyper::upgrade::on(&mut request)));
        let (parts, _) = request.into_parts();
        let entrant = Entrant { user, grant };
        if !path.rest.is_session() {
            return self.send(entrant, path, &parts).await;
        }
        let Some(asked) = asked else {
            let message = "a session needs a WebSocket or SPDY; use kubectl 1.30 or newer";
            return Err(Refused::new(StatusCode::BAD_REQUEST, "NoUpgrade", message));
        };
        self.open_session(entrant, path, parts, asked).await
    }

    /// Passes on a request that is no session. The body of its response ends with the grant if the client follows it.
    async fn send(
        &self,
        entrant: Entrant,
        path: &Path,
        parts: &Parts,
    ) -> Result<Response<Body>, Refused> {
        let slot = path
            .rest
            .lasts()
            .then(|| self.sessions.take(&entrant.user.user))
            .transpose()?;
        let (grant, user) = (Arc::clone(&entrant.grant), entrant.user.clone());
        let session = slot.map(|slot| self.enter(entrant, path, &Plan::None, None, slot));
        let (target, _) = self.authorizer.complete(&grant, &user, path).await?;
        let answered = self.authorizer.upstream.send(parts, &target).await?;
        let Some(session) = session else {
            return Ok(whole(answered));
        };
        if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
            let message = "the API server changed to a protocol that the client did not request";
            return Err(Refused::unavailable("ApiServer", message));
        }
        Ok(head(&answered).map(|_| followed(session, answered.into_body())))
    }

    /// Registers a session.
    fn enter(
        &self,
        entrant: Entrant,
        path: &Path,
        plan: &Plan,
        moderation: Option<Moderation>,
        slot: Slot,
    ) -> Session {
        let Entrant { user, grant } = entrant;
        let (way, opened_at) = (path.rest.title(), self.journal.now());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (namespace, name) = (&grant.request.namespace, &grant.request.name);
        let key = SessionKey::new(namespace, name, opened_at, &self.replica, number);
        let about = recordings::about(&Opening {
            grant: &grant,
            user: &user,
            way,
            key: &key,
            options: &path.options,
            at: opened_at,
        });
        let (live, entry) = self.register.enter(Opened {
            key,
            about,
            user,
            until: grant.window.until,
            recording: grant.sessions.recording,
            recorded: matches!(plan, Plan::Record(_)),
            // Nothing happens to a pod for as long as it is well.
            idle: Idle::new(grant.sessions.idle_timeout.filter(|_| way != "watch")),
            moderation,
        });
        let data = Registered {
            live,
            way,
            must_be_recorded: plan.is_required(),
            grants: Arc::clone(&self.authorizer.grants),
            journal: self.journal.clone(),
            grant,
            slot,
        };
        Session::new(data, entry)
    }
}

/// Denies a request with a body.
fn bodiless(headers: &HeaderMap) -> Result<(), Refused> {
    let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
    let empty = lengths.len() <= 1 && lengths.iter().all(|length| *length == "0");
    if empty && !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    let message = "the forwarded request must not have a body";
    Err(Refused::new(
        StatusCode::BAD_REQUEST,
        "BodyNotAllowed",
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::testing::headers;

    #[test]
    fn request_with_body_is_refused_for_any_length_header() {
        for (all, good) in [
            (&[][..], true),
            (&[("content-length", "0")], true),
            (&[("content-length", "1")], false),
            (&[("content-length", "0"), ("content-length", "5")], false),
            (&[("transfer-encoding", "chunked")], false),
            (
                &[("content-length", "0"), ("transfer-encoding", "chunked")],
                false,
            ),
        ] {
            assert_eq!(bodiless(&headers(all)).is_ok(), good, "{all:?}");
        }
    }
}
