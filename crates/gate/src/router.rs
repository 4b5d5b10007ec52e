//! The HTTP server of the gate, from the request to the response: authentication, routing, authorization and
//! forwarding.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use futures::{StreamExt as _, stream};
use http_body_util::BodyDataStream;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use oz_admission::{ClientCertificate, Peer};
use oz_api::Requester;
use oz_audit::Trail;
use oz_core::access::grant::Grant;
use oz_core::connect::{GrantState, Refusal};
use oz_core::gate::ticket::Ticket;
use oz_core::gate::{GROUP, VERSION};
use oz_gating::live::{self, Live as AskedLive};
use oz_gating::moderation::{self, Phase};
use oz_gating::path::{self, Path, Rest};
use oz_gating::query::Options;
use oz_gating::recording::SessionKey;
use oz_gating::upgrade::{Agreed, Upgrade};
use oz_gating::{GateRequest, peer};
use oz_runtime::Clock;
use oz_trail::{Action, Decision, Record};
use serde_json::Value;

use crate::answer::{Refused, document};
use crate::caller::Callers;
use crate::grants::Grants;
use crate::handshake::{switching, values};
use crate::idle::Idle;
use crate::live::{Entry, Live, Opened, Register, json_response, not_allowed, over};
use crate::metrics::Metrics;
use crate::moderated::{self, Moderation, Turn};
use crate::opening::OpeningSession;
use crate::peers::{Peers, Question};
use crate::play::Viewings;
use crate::recordings::{self, Opening, Plan, Recordings};
use crate::relay::{Beside, Carried, relay};
use crate::sessions::{Sessions, Slot};
use crate::side::{Connected, Side};
use crate::socket::{self, Spoken};
use crate::tape::{Tape, Writer};
use crate::upstream::{UpgradeResponse as Answered, Upstream, head, whole};
use crate::waiting::Wait;
use crate::{debug, discovery, slowed};

/// Maximum time in which both sides must switch protocols after the API server accepted.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval within which several changes are processed together.
const COALESCE: Duration = Duration::from_millis(25);
/// Maximum interval between two checks of a session.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The state of the HTTP server.
pub(crate) struct Door {
    pub(crate) callers: Callers,
    pub(crate) grants: Arc<Grants>,
    pub(crate) sessions: Arc<Sessions>,
    /// The register of open sessions.
    pub(crate) register: Arc<Register>,
    /// The other replicas.
    pub(crate) peers: Peers,
    pub(crate) upstream: Upstream,
    pub(crate) trail: Trail,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    /// The storage of recordings, if there is one.
    pub(crate) recordings: Option<Recordings>,
    pub(crate) viewings: Viewings,
    /// Name of this replica, for the sessions of this process.
    pub(crate) replica: String,
    pub(crate) next: AtomicU64,
}

/// An open session.
pub(crate) struct Session {
    pub(crate) grant: Arc<Grant>,
    pub(crate) user: Requester,
    pub(crate) way: &'static str,
    pub(crate) opened_at: Timestamp,
    pub(crate) key: SessionKey,
    must_be_recorded: bool,
    pub(crate) idle: Arc<Idle>,
    pub(crate) live: Arc<Live>,
    _entry: Entry,
    _slot: Slot,
}

impl Session {
    /// Returns the user and the pod of the session, for messages.
    pub(crate) fn title(&self) -> String {
        format!(
            "the session of {} in pod {} ({})",
            self.user.user, self.grant.pod.name, self.way
        )
    }

    /// Creates an audit record about the session, with an ID that is unique for each action.
    pub(crate) fn record(
        &self,
        now: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
    ) -> Record {
        let mut record = self.grant.record(now, action, decision, reason, message);
        let key = self.key.to_string();
        record.id = Record::id(action, &key);
        record.user = Some(self.user.clone());
        record.detail("session", key)
    }
}

/// The response of the API server to the request for a session.
pub(crate) enum Requested {
    /// The session is open.
    Open(OpeningSession, Agreed, OnUpgrade),
    /// The API server sent another response, and the session is not opened.
    Answered(Response<kube::client::Body>),
}

/// The request that was sent to the API server.
struct Begun {
    grant: Arc<Grant>,
    user: Requester,
    way: &'static str,
    opened_at: Timestamp,
    moderation: Option<Moderation>,
    slot: Slot,
}

/// The caller of the gate.
struct Caller {
    user: Requester,
    /// Whether another replica sends the request, which has authorized it.
    by_a_replica: bool,
}

/// Creates the routes.
pub(crate) fn router(door: Arc<Door>) -> Router {
    Router::new().fallback(answer).with_state(door)
}

async fn answer(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    let mut response = answered(&door, request).await;
    if door.sessions.are_ending() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // A connection that is kept would bring what comes next here as well.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn answered(door: &Arc<Door>, request: Request) -> Response<Body> {
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let caller = match door.caller(&request) {
        Ok(caller) => caller,
        Err(refused) => {
            door.metrics.answered("unknown", refused.reason);
            if let Some(peer) = peer {
                peer.has_shown_no_key();
            }
            return refused.response();
        }
    };
    if let Some(peer) = peer {
        peer.has_shown_the_key();
    }
    if let Some(refused) = not_described(request.uri().path()) {
        door.metrics.answered("openapi", refused.reason);
        return refused.response();
    }
    if let Some(answered) = of_the_group(request.method(), request.uri().path(), request.headers())
    {
        door.metrics.answered("group", "OK");
        return answered;
    }
    let discovers = discovers(request.headers());
    let user = caller.user.user.clone();
    let (what, answered) = door.pass(caller, request).await;
    match answered {
        Ok(response) => {
            door.metrics.answered(what, "OK");
            response
        }
        Err(refused) => {
            door.metrics.answered(what, refused.reason);
            tracing::info!(?user, what, reason = refused.reason, "refused");
            match discovers {
                true => refused.text(),
                false => refused.response(),
            }
        }
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

/// Returns 404 for a path of OpenAPI, which the API server requests repeatedly: it omits a group with 404, and logs
/// every other response.
fn not_described(path: &str) -> Option<Refused> {
    const DESCRIPTIONS: [&str; 2] = ["/openapi/v2", "/openapi/v3"];
    DESCRIPTIONS.contains(&path).then(|| {
        let message = "the gate has no description of its group";
        Refused::new(StatusCode::NOT_FOUND, "OpenAPINotServed", message)
    })
}

/// Returns the response about the API group, which every user may read.
fn of_the_group(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let found = match path.strip_prefix("/apis")? {
        "" => discovery::groups(),
        rest if rest == format!("/{GROUP}") => discovery::group(),
        rest if rest == format!("/{GROUP}/{VERSION}") => discovery::resources(),
        _ => return None,
    };
    Some(if method == Method::GET {
        discovered(headers, &found).unwrap_or_else(|refused| refused.response())
    } else {
        let message = "only GET is served here";
        Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).response()
    })
}

/// Returns the path and query of the request to the API server.
pub(crate) fn upstream_target(path: &Path) -> Result<String, Refused> {
    path.target().ok_or_else(|| {
        let message = "the API server has no such path";
        Refused::new(StatusCode::NOT_FOUND, "NotFound", message)
    })
}

/// Returns a discovery document as plain JSON. A client that requests another form repeats the request after this
/// refusal.
fn discovered(headers: &HeaderMap, found: &Value) -> Result<Response<Body>, Refused> {
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    let plain = |part: &str| {
        let mut parts = part.split(';').map(str::trim);
        let kind = parts.next();
        let other = parts.any(|parameter| parameter.starts_with("as="));
        let plain = ["application/json", "application/*", "*/*"];
        !other && kind.is_some_and(|kind| plain.contains(&kind))
    };
    let good = accepted.peek().is_none()
        || accepted.any(|value| value.to_str().is_ok_and(|text| text.split(',').any(plain)));
    if good {
        return Ok(document(StatusCode::OK, found));
    }
    let message = "only application/json is served";
    Err(Refused::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        message,
    ))
}

impl Door {
    /// Returns the caller: as the API server authenticated it, or, for requests about open sessions only, as another
    /// replica did.
    fn caller(&self, request: &Request) -> Result<Caller, Refused> {
        let word = request.headers().get(peer::HEADER);
        // The API server hands on whatever header somebody sends: what comes from there is none of a replica.
        let direct = request
            .extensions()
            .get::<Arc<ClientCertificate>>()
            .is_none();
        let Some(word) = word.filter(|_| direct) else {
            let user = self.callers.identify(request)?;
            return Ok(Caller {
                user,
                by_a_replica: false,
            });
        };
        let user = word.to_str().ok().and_then(|word| {
            let (keys, now) = (self.grants.keys(), self.clock.now());
            peer::Word::open(keys, word, request.method().as_str(), target(request), now)
        });
        let unknown = || Refused::unknown("the peer token of another replica does not permit this");
        Ok(Caller {
            user: user.ok_or_else(unknown)?,
            by_a_replica: true,
        })
    }

    /// Returns the response about open sessions, from all replicas if the gate was requested.
    async fn of_all(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &AskedLive,
        method: &Method,
        target: &str,
    ) -> Result<Response<Body>, Refused> {
        let question = Question {
            user: &caller.user,
            method,
            target,
            keys: self.grants.keys(),
            clock: &*self.clock,
        };
        let key = match asked {
            AskedLive::List { .. } if method == Method::GET => {
                let mut listing = self.listing(asked);
                if !caller.by_a_replica {
                    self.peers.add_to(&mut listing, &question).await;
                }
                return json_response(&listing);
            }
            AskedLive::List { .. } => return Err(not_allowed()),
            AskedLive::One(key) | AskedLive::Watch(key) => key,
        };
        let query = target.split_once('?').map(|(_, query)| query);
        match self.live(&caller.user, asked, method, query).await? {
            Some(answer) => Ok(answer),
            None if caller.by_a_replica => Err(over(key)),
            None => self.peers.find(key, &question).await,
        }
    }

    /// Forwards a permitted request; returns its kind as well.
    async fn pass(
        self: &Arc<Self>,
        caller: Caller,
        request: Request,
    ) -> (&'static str, Result<Response<Body>, Refused>) {
        let uri = request.uri();
        if let Some(asked) = live::read(uri.path()) {
            let (method, target) = (request.method().clone(), target(&request).to_owned());
            return ("live", self.of_all(&caller, &asked, &method, &target).await);
        }
        let user = caller.user;
        if caller.by_a_replica {
            // No word is good for anything else; said once more where it would matter.
            let why = "a peer token permits requests about open sessions only";
            return ("none", Err(Refused::unknown(why)));
        }
        if let Some(asked) = path::read_recordings(uri.path()) {
            return (
                "recordings",
                self.play(&user, &asked, request.method()).await,
            );
        }
        let read = path::read(request.method().as_str(), uri.path(), uri.query());
        let path = match read {
            Ok(path) => path,
            Err(refusal) => return ("none", Err(refusal.into())),
        };
        (path.rest.title(), self.decided(user, &path, request).await)
    }

    async fn decided(
        self: &Arc<Self>,
        user: Requester,
        path: &Path,
        mut request: Request,
    ) -> Result<Response<Body>, Refused> {
        let standing = self.may(&user, path)?;
        let found = match &path.rest {
            Rest::Versions => discovery::core_versions(),
            Rest::Groups => discovery::no_groups(),
            Rest::Resources => discovery::core_resources(),
            rest if rest.adds() => {
                let (parts, patch) = debug::patch_of(request).await?;
                return self
                    .add_container(&user, path, &standing.grant, &parts, &patch)
                    .await;
            }
            Rest::Pod { .. } | Rest::Listed { .. } => {
                // Whatever it is, nobody reads it; and its length could be read in two ways.
                bodiless(request.headers())?;
                let asked = Upgrade::read(|name| values(request.headers(), name))?;
                let asked = asked.map(|asked| (asked, hyper::upgrade::on(&mut request)));
                let (parts, _) = request.into_parts();
                return self.to_pod(user, path, standing.grant, parts, asked).await;
            }
        };
        discovered(request.headers(), &found)
    }

    /// Returns the grant that permits the request.
    fn may(&self, user: &Requester, path: &Path) -> Result<GrantState, Refused> {
        let now = self.clock.now();
        let standing = self.grants.find(&path.namespace, &path.request, user)?;
        let lock = standing
            .as_ref()
            .and_then(|standing| self.grants.lock(&standing.grant, user, now));
        let asked = GateRequest { now, user, path };
        oz_gating::decide(asked, standing.as_ref(), lock.as_ref())?;
        // `decide` refuses without one.
        standing.ok_or_else(|| Refused::unavailable("NotReady", "try again"))
    }

    async fn to_pod(
        self: &Arc<Self>,
        user: Requester,
        path: &Path,
        grant: Arc<Grant>,
        parts: Parts,
        asked: Option<(Upgrade, OnUpgrade)>,
    ) -> Result<Response<Body>, Refused> {
        let is_session = path.rest.is_session();
        if is_session && asked.is_none() {
            let message = "a session needs a WebSocket or SPDY; use kubectl 1.30 or newer";
            return Err(Refused::new(StatusCode::BAD_REQUEST, "NoUpgrade", message));
        }
        let slot = path
            .rest
            .lasts()
            .then(|| self.sessions.take(&user.user))
            .transpose()?;
        let way = path.rest.title();
        let protocol = asked.as_ref().map(|(asked, _)| asked);
        let recordings = self.recordings.as_ref();
        let plan = Plan::decide(recordings, (&grant, &user), way, protocol).await?;
        let moderation = moderated::needed(&grant, way, protocol)?;
        let begun = slot.map(|slot| Begun {
            grant: Arc::clone(&grant),
            user: user.clone(),
            way,
            opened_at: self.clock.now(),
            moderation: moderation.map(|config| Moderation::new(config, &grant, &user)),
            slot,
        });
        let session = begun.map(|begun| self.session(begun, &plan, &path.options));
        let (session, asked) = match (session, asked) {
            (Some(session), Some(asked)) if session.live.moderation.is_some() => {
                let wait = Wait {
                    plan,
                    path: path.clone(),
                    parts,
                };
                return self.wait(session, wait, asked);
            }
            other => other,
        };
        let (target, entered) = self.enters(&grant, path).await?;
        let ticket = is_session
            .then(|| self.ticket(&grant, &user, entered.as_deref()))
            .transpose()?;
        let Some(session) = session else {
            let answered = self.upstream.send(&parts, &target).await?;
            return Ok(whole(answered));
        };
        let (Some((asked, client)), Some(ticket)) = (asked, ticket) else {
            let answered = self.upstream.send(&parts, &target).await?;
            if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
                let message = "the API server changed to a protocol that the client did not \
                    request";
                return Err(Refused::unavailable("ApiServer", message));
            }
            return Ok(head(&answered).map(|_| self.followed(session, answered.into_body())));
        };
        // Before the API server is asked: a command that must be recorded does not run where it cannot be.
        let (writer, unrecorded) = self.record(&session, &plan, &path.options).await?;
        let opening = OpeningSession::new(self, session, writer);
        let requested = self.request(opening, &asked, (&parts, &target, &ticket));
        let (opening, agreed, upstream) = match requested.await? {
            Requested::Open(opening, agreed, upstream) => (opening, agreed, upstream),
            Requested::Answered(answered) => return Ok(whole(answered)),
        };
        let response = switching(&asked, &agreed)?;
        if let Some((session, writer)) = opening.opened() {
            self.is_unrecorded(&session, unrecorded);
            let spoken = Spoken::new(&agreed, &path.options, session.way);
            session.live.agreed(spoken);
            let client = Side::new(client, spoken);
            tokio::spawn(Arc::clone(self).carry(session, (client, upstream), writer));
        }
        Ok(response)
    }

    /// Asks the API server about the target pod. Returns the path and query of the request to the API server, and the
    /// debug container that may be entered only because the grant added it.
    pub(crate) async fn enters(
        &self,
        grant: &Grant,
        path: &Path,
    ) -> Result<(String, Option<String>), Refused> {
        let entered = self.settled(grant, &path.rest).await?;
        Ok((upstream_target(path)?, entered))
    }

    /// Creates the session token, from which the connect hook reads the user and the container.
    pub(crate) fn ticket(
        &self,
        grant: &Grant,
        user: &Requester,
        entered: Option<&str>,
    ) -> Result<String, Refused> {
        let ticket = Ticket::new(grant, user, self.clock.now()).to(entered);
        let sealed = ticket.seal(self.grants.keys());
        sealed.map_err(|error| Refused::unavailable("NotSealed", error.to_string()))
    }

    /// Requests a session from the API server.
    pub(crate) async fn request(
        &self,
        mut opening: OpeningSession,
        asked: &Upgrade,
        (parts, target, ticket): (&Parts, &str, &str),
    ) -> Result<Requested, Refused> {
        let sent = self.upstream.open((parts, target), ticket, asked).await;
        let answered = sent.inspect_err(|refused| opening.refused(refused))?;
        Ok(match answered {
            Answered::Open(agreed, upstream) => Requested::Open(opening, agreed, upstream),
            Answered::Answered(answered) => {
                opening.answered(answered.status());
                Requested::Answered(answered)
            }
        })
    }

    /// Writes an audit record that a session is not recorded, if there is a reason why.
    pub(crate) fn is_unrecorded(&self, session: &Session, why: Option<String>) {
        if let Some(why) = why {
            self.unrecorded(session, &why);
        }
    }

    /// Pauses a session while too few moderators watch it; ready after the timeout of a pause.
    async fn moderated(&self, session: &Session) -> Refusal {
        let (live, traffic) = (&session.live, &session.live.traffic);
        let Some(moderation) = &live.moderation else {
            return std::future::pending().await;
        };
        loop {
            match moderation.turn().await {
                Turn::Stands(Phase::Open) => {
                    self.held(session, false, moderation::RESUMED.to_owned());
                }
                Turn::Stands(Phase::Paused(_)) => {
                    self.held(session, true, moderation::held(&moderation.config));
                    traffic.alive();
                }
                Turn::StillHeld => traffic.alive(),
                Turn::Stands(Phase::ViewerTimeout | Phase::ViewerReturnTimeout) => {
                    return moderation::nobody_came_back(&moderation.config);
                }
                Turn::Stands(Phase::Waiting(_)) => {}
            }
        }
    }

    /// Pauses or resumes a session, notifies its user, and writes an audit record.
    fn held(&self, session: &Session, held: bool, told: String) {
        session.live.traffic.hold(held);
        session.idle.hold(held);
        let (action, now) = (Action::SessionPaused, self.clock.now());
        let reason = if held { "Paused" } else { "Resumed" };
        let message = format!("session {} of {}: {told}", session.key, session.user.user);
        let mut record = session.record(now, action, Decision::Note, reason, message);
        // There is one each time.
        record.id = Record::id(action, &format!("{} {now} {reason}", session.key));
        self.trail.note(record);
        session.live.traffic.tell(told);
    }

    /// Registers a session.
    fn session(&self, begun: Begun, plan: &Plan, options: &Options) -> Session {
        let Begun {
            grant,
            user,
            way,
            opened_at,
            moderation,
            slot,
        } = begun;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (namespace, name) = (&grant.request.namespace, &grant.request.name);
        let key = SessionKey::new(namespace, name, opened_at, &self.replica, number);
        // Nothing happens to a pod for as long as it is well.
        let idle = Idle::new(grant.sessions.idle_timeout.filter(|_| way != "watch"));
        let about = recordings::about(&Opening {
            grant: &grant,
            user: &user,
            way,
            key: &key,
            options,
            at: opened_at,
        });
        let (live, entry) = self.register.enter(Opened {
            key: key.clone(),
            about,
            user: user.clone(),
            until: grant.window.until,
            recording: grant.sessions.recording,
            recorded: matches!(plan, Plan::Record(_)),
            idle: Arc::clone(&idle),
            moderation,
        });
        Session {
            key,
            must_be_recorded: plan.is_required(),
            idle,
            grant,
            user,
            way,
            opened_at,
            live,
            _entry: entry,
            _slot: slot,
        }
    }

    /// Begins to record a session, as planned. Returns the recording, or the reason why the session is not recorded.
    pub(crate) async fn record(
        &self,
        session: &Session,
        plan: &Plan,
        options: &Options,
    ) -> Result<(Option<Writer>, Option<String>), Refused> {
        let why = match (plan, &self.recordings) {
            (Plan::None, _) => return Ok((None, None)),
            (Plan::Record(config), Some(recordings)) => {
                let opening = Opening {
                    grant: &session.grant,
                    user: &session.user,
                    way: session.way,
                    key: &session.key,
                    options,
                    at: session.opened_at,
                };
                match recordings.begin(&opening, config).await {
                    Ok(writer) => return Ok((Some(writer), None)),
                    Err(refused) if session.must_be_recorded => return Err(refused),
                    Err(refused) => refused.message,
                }
            }
            (Plan::Record(_), None) => "there is no storage for it".to_owned(),
            (Plan::Cannot(why), _) => why.clone(),
        };
        Ok((None, Some(why)))
    }

    /// Carries the bytes of a session until its end, and writes an audit record of the end.
    pub(crate) async fn carry(
        self: Arc<Self>,
        session: Session,
        (client, upstream): (Side, OnUpgrade),
        writer: Option<Writer>,
    ) {
        self.metrics.opened();
        let client = client.connected(self.sessions.message_room());
        let both = async { tokio::try_join!(client, upstream) };
        let (why, carried) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
            Ok(Ok((client, upstream))) => {
                let upstream = TokioIo::new(upstream);
                let tape = writer.as_ref().map(Writer::tape);
                let end = async {
                    tokio::select! {
                        why = self.end_of(&session, true) => why,
                        why = self.moderated(&session) => why,
                        why = not_recorded(tape), if session.must_be_recorded => why,
                        never = self.slowed(&session, tape) => match never {},
                    }
                };
                let beside = Beside {
                    traffic: &session.live.traffic,
                    tape: tape.map(Arc::as_ref),
                    idle: &session.idle,
                };
                match client {
                    Connected::Messages(client, spoken) => {
                        socket::relay(*client, upstream, end, spoken, beside).await
                    }
                    Connected::Bytes(client) => relay(client, upstream, end, beside).await,
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a session was not opened");
                (None, Carried::default())
            }
            Err(_elapsed) => (None, Carried::default()),
        };
        let how = how_it_ended(why.as_ref(), carried);
        session.live.traffic.end(&how);
        self.ended(&session, why.as_ref(), carried);
        if let Some(writer) = writer {
            self.recorded(&session, writer, &how, carried).await;
        }
    }

    /// Reports a session that is slowed down; never ready.
    async fn slowed(&self, session: &Session, tape: Option<&Arc<Tape>>) -> Infallible {
        let (traffic, idle) = (&session.live.traffic, &session.idle);
        slowed::look_after(tape, traffic, idle, &self.metrics).await
    }

    /// Ends the recording of a session that has ended, and writes an audit record.
    pub(crate) async fn recorded(
        &self,
        session: &Session,
        writer: Writer,
        how: &str,
        carried: Carried,
    ) {
        let Some(ended) = writer.end(how).await else {
            return;
        };
        let passed = carried.inward.saturating_add(carried.outward);
        if let Some(why) = &ended.broken {
            self.unrecorded(session, why);
        } else if passed > 0 && !ended.heard {
            // It cannot be: what passes is what was read. Whoever finds a way is to be seen.
            self.metrics.nothing_recorded.inc();
            let why = format!("it carried {passed} bytes, and its recording has none of them");
            self.unrecorded(session, &why);
        }
        let (key, now) = (&session.key, self.clock.now());
        match ended.head {
            Ok(head) => {
                let message = format!("the session {key} of {} is recorded", session.user.user);
                let recipients = ended.recording.recipients();
                let what = (key, &head, recipients);
                let mut record = recordings::recorded(now, what, "Recorded", message);
                record.user = Some(session.user.clone());
                record.request = session.grant.request.clone();
                record.pod = Some(session.grant.pod.clone());
                recordings::on_record(&self.trail, &record).await;
                if let Err(error) = ended.recording.finish().await {
                    tracing::warn!(session = %key, %error, "failed to remove a recording that is \
                        in the audit trail");
                }
            }
            Err(error) => self.unrecorded(session, &error.to_string()),
        }
    }

    /// Writes an audit record that a session is not recorded, or no longer recorded.
    fn unrecorded(&self, session: &Session, why: &str) {
        let message = format!("{} is not recorded: {why}", session.title());
        let (action, now) = (Action::SessionUnrecorded, self.clock.now());
        let note = Decision::Note;
        self.trail
            .note(session.record(now, action, note, "NotRecorded", message));
    }

    /// Returns a body that ends with the grant; its last line states the reason.
    fn followed(self: &Arc<Self>, session: Session, body: kube::client::Body) -> Body {
        let session = Arc::new(session);
        let end = {
            let (door, session) = (Arc::clone(self), Arc::clone(&session));
            async move { door.end_of(&session, true).await }
        };
        let end = futures::FutureExt::shared(end);
        let idle = Arc::clone(&session.idle);
        let live = Arc::clone(&session.live);
        // Who watches reads one object after the other, and no words between them.
        let in_words = session.way != "watch";
        let over = Followed {
            door: Arc::clone(self),
            session,
            end: end.clone(),
        };
        let last = stream::once(async move {
            let why = futures::FutureExt::now_or_never(over.end.clone());
            drop(over);
            let told = why.filter(|_| in_words);
            let told = told.map(|why| format!("\noz: {}\n", why.message).into_bytes());
            Ok(told.unwrap_or_default().into())
        });
        let body = BodyDataStream::new(body).inspect(move |piece| {
            idle.used();
            if let Ok(piece) = piece {
                live.traffic.passed(false, piece.len());
            }
        });
        let body = body.take_until(end);
        Body::from_stream(body.chain(last))
    }

    /// Ready when a session must end, with the reason; `may_be_idle` is false while the session accepts no input.
    pub(crate) async fn end_of(&self, session: &Session, may_be_idle: bool) -> Refusal {
        let mut changes = self.grants.changes();
        let (grant, user) = (&session.grant, &session.user);
        loop {
            changes.borrow_and_update();
            let now = self.clock.now();
            if let Err(why) = self.grants.lasts(grant, user, now) {
                return why;
            }
            let left = grant.window.until.duration_since(now);
            let left = left.max(SignedDuration::ZERO).unsigned_abs();
            // The clock is asked again then: a timer may be early by as much as it rounds.
            let left = left.clamp(Duration::from_millis(1), LOOK_EVERY);
            tokio::select! {
                _ = changes.changed() => tokio::time::sleep(COALESCE.min(left)).await,
                () = tokio::time::sleep(left) => {}
                limit = session.idle.over(), if may_be_idle => return oz_gating::idle(grant, limit),
                why = session.live.ended() => return why,
                () = self.sessions.closing() => {
                    let message = "this replica of the gate is stopping; connect again".to_owned();
                    return Refusal { reason: "Stopping", message };
                }
            }
        }
    }

    /// Counts a session that has ended, and writes an audit record.
    fn ended(&self, session: &Session, why: Option<&Refusal>, carried: Carried) {
        let reason = why.map_or("Closed", |why| why.reason);
        self.metrics.ended(reason, carried.inward, carried.outward);
        self.note_end(session, why, carried);
    }

    /// Writes an audit record that a session has ended.
    pub(crate) fn note_end(&self, session: &Session, why: Option<&Refusal>, carried: Carried) {
        let reason = why.map_or("Closed", |why| why.reason);
        let action = match why {
            Some(_) => Action::SessionTerminated,
            None => Action::SessionEnded,
        };
        let title = session.title();
        let message = match why {
            Some(why) => format!("{title} is over: {}", why.message),
            None => format!("{title} is over"),
        };
        let now = self.clock.now();
        let mut record = session.record(now, action, Decision::End, reason, message);
        for (key, value) in [
            ("way", session.way.to_owned()),
            ("openedAt", session.opened_at.to_string()),
            ("bytesIn", carried.inward.to_string()),
            ("bytesOut", carried.outward.to_string()),
        ] {
            record.details.insert(key.to_owned(), value);
        }
        if let Some(by) = session.live.ended_by() {
            record.details.insert("endedBy".to_owned(), by.user);
        }
        if let Some(code) = carried.exit {
            record
                .details
                .insert("exitCode".to_owned(), code.to_string());
        }
        self.trail.note(record);
    }
}

/// A response body that a client reads. When it ends, or the client disconnects, the audit record states the number
/// of bytes.
struct Followed<F: Future<Output = Refusal>> {
    door: Arc<Door>,
    session: Arc<Session>,
    end: futures::future::Shared<F>,
}

impl<F: Future<Output = Refusal>> Drop for Followed<F> {
    fn drop(&mut self) {
        let session = &self.session;
        // Of what is watched that somebody ended it alone.
        if session.way == "watch" && session.live.ended_by().is_none() {
            return;
        }
        let (_, outward) = session.live.traffic.bytes();
        let carried = Carried {
            outward,
            ..Carried::default()
        };
        self.door.note_end(session, self.end.peek(), carried);
    }
}

/// Formats the end of a session for its viewers.
pub(crate) fn how_it_ended(why: Option<&Refusal>, carried: Carried) -> String {
    match (why, carried.exit) {
        (Some(why), _) => format!("the session was ended: {}", why.message),
        (None, Some(code)) => format!("the session is over, with exit code {code}"),
        (None, None) => "the session is over".to_owned(),
    }
}

/// Returns path and query of a request.
fn target(request: &Request) -> &str {
    let target = request.uri().path_and_query();
    target.map_or_else(|| request.uri().path(), |target| target.as_str())
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

/// Ready when a session that must be recorded is no longer recorded.
async fn not_recorded(tape: Option<&Arc<Tape>>) -> Refusal {
    let why = match tape {
        Some(tape) => tape.broken().await,
        None => std::future::pending().await,
    };
    let message = format!("this session requires a recording, which failed: {why}");
    Refusal {
        reason: "NotRecorded",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

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

    #[test]
    fn description_in_openapi_is_not_found_for_the_group_alone() {
        for path in ["/openapi/v2", "/openapi/v3"] {
            let refused = not_described(path).unwrap();
            assert_eq!(refused.response().status(), 404, "{path}");
        }
        let behind = format!("{}/openapi/v2", oz_core::gate::prefix("shop", "mine"));
        for path in [
            "/openapi",
            "/openapi/v3/",
            "/openapi/v2/../v3",
            behind.as_str(),
            "/apis",
        ] {
            assert_eq!(not_described(path), None, "{path}");
        }
    }

    #[test]
    fn group_discovery_without_plain_json_is_not_acceptable() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let both = "application/json;as=APIGroupDiscoveryList,application/json";
        for (all, status) in [
            (&[][..], 200),
            (&[("accept", "*/*")], 200),
            (&[("accept", both)], 200),
            (&[("accept", aggregated)], 406),
            (&[("accept", "application/vnd.kubernetes.protobuf")], 406),
        ] {
            let answered = of_the_group(&Method::GET, "/apis", &headers(all)).unwrap();
            assert_eq!(answered.status().as_u16(), status, "{all:?}");
        }
        let other = of_the_group(&Method::GET, "/apis/apps", &headers(&[]));
        assert!(other.is_none());
        let post = of_the_group(&Method::POST, "/apis", &headers(&[])).unwrap();
        assert_eq!(post.status().as_u16(), 405);
    }
}
