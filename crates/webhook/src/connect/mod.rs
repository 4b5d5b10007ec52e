//! The hook at the moment of connecting: exec, attach, port-forward, proxies, and changes of
//! running pods (added containers, images, limits). In an enforcing namespace, it denies a user
//! without a grant for exactly this pod; in other namespaces, it records the connections. In both
//! cases, the session of a grant ends with the grant.

mod answer;
mod asked;
mod evaluation_slots;
mod grants;
pub(crate) mod policies;
mod recent;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use oz_admission::connect::PodStreamOptions;
use oz_admission::{Cx, Mutate, Notes, Operation, Rejection, Review};
use oz_audit::Sink;
use oz_core::access::grant::Grant;
use oz_core::access::seal::Keys;
use oz_core::connect::cut::{self, Cut};
use oz_core::connect::ephemeral::AddedContainer;
use oz_core::connect::{self, Attempt, ConnectionFacts, ConnectionKind, Refusal};
use oz_core::gate;
use oz_trail::Mode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::Value;

use asked::PodNow;
pub(crate) use grants::{Grants, watch};
pub(crate) use policies::Policies;
use recent::{EventLimit, Recent};

use crate::lock::Locks;
use crate::stamp::requester;

/// The time that the API server waits for the hook. The hook's own timeouts are shorter, so that
/// the user gets the reason of a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// The data and components on which the hook bases its decisions.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) grants: Grants,
    pub(crate) policies: Arc<Policies>,
    pub(crate) records: Arc<dyn Sink>,
    /// True if, in enforcing namespaces, a connection without an audit record is denied.
    pub(crate) audit_required: bool,
    /// The keys that seal the audit record of a connection of a break-glass group.
    keys: Keys,
    /// The length of the window that one review of break-glass connections covers.
    review_window: SignedDuration,
    unrecorded: Counter,
    recent: Arc<Recent>,
    event_limit: Arc<EventLimit>,
}

impl Connections {
    pub(crate) fn new(
        grants: Grants,
        records: Arc<dyn Sink>,
        audit_required: bool,
        keys: Keys,
        review_window: SignedDuration,
    ) -> Self {
        Self {
            keys,
            review_window,
            grants,
            policies: Arc::default(),
            records,
            audit_required,
            unrecorded: Counter::default(),
            recent: Arc::default(),
            event_limit: Arc::default(),
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_audit_unrecorded_sessions",
            "Sessions that were opened and could not be recorded",
            self.unrecorded.clone(),
        );
    }
}

/// The hook for connections in one mode.
pub(crate) struct Connect {
    pub(crate) mode: Mode,
    pub(crate) connections: Connections,
    pub(crate) locks: Locks,
}

/// A connection that may be opened.
struct Allowed {
    /// The grant that allows it; `None` where no grant is required.
    grant: Option<Arc<Grant>>,
    cut: Cut,
}

impl Mutate for Connect {
    /// The options of a connection, or a pod for a change of the pod.
    type Object = Value;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Value>,
        object: &mut Value,
    ) -> Result<Notes, Rejection> {
        let Some(way) = way(review) else {
            return Err(answer::not_a_connection(review));
        };
        if way == ConnectionKind::Image && report::images(review).is_empty() {
            return Ok(Notes::none());
        }
        let options = if way.has_options() {
            serde_json::from_value(object.clone()).map_err(answer::odd_options)?
        } else {
            PodStreamOptions::default()
        };
        let added = report::added(review);
        let added = match added.as_slice() {
            [one] if way == ConnectionKind::EphemeralContainer => one.clone(),
            _ => AddedContainer::default(),
        };
        let container = options.container.as_deref().unwrap_or(&added.name);
        let user = requester(&review.user);
        let place = (review.namespace.as_deref(), review.name.as_deref());
        let (Some(namespace), Some(name)) = place else {
            return Err(answer::not_a_connection(review));
        };
        let grants = &self.connections.grants;
        let ticket = grants.ticket(namespace, (&user, &review.user), cx.now);
        let attempt = Attempt {
            now: cx.now,
            user: &user,
            namespace,
            pod: way.target_name(name),
            way,
            container: Some(container).filter(|name| !name.is_empty()),
            argv: match way {
                ConnectionKind::EphemeralContainer => &added.argv,
                _ => &options.command,
            },
            tty: options.tty || added.tty,
            stdin: options.stdin || added.stdin,
            ticket: ticket.as_ref(),
        };
        let pod = PodNow::ask(&cx.client, &attempt).await;
        let decided = match (pod.permits(&attempt), connect::understood(way, object)) {
            (Err(refusal), _) => Err(refusal),
            (_, Err(refusal)) if self.mode == Mode::Enforcing => Err(refusal),
            // A proxy carries the request of one page each.
            _ if self.mode == Mode::Observing && way == ConnectionKind::Proxy => {
                return Ok(Notes::none());
            }
            _ => self.decide(cx, &attempt, &pod).await,
        };
        let report = report::ConnectionReport {
            connect: self,
            cx,
            review,
            attempt: &attempt,
            pod: &pod,
        };
        match decided {
            Ok(allowed) => {
                report.opened(&allowed).await?;
                if let Cut::ByItself(command) | Cut::Marked(command, _) = allowed.cut {
                    object["command"] = command.into();
                }
                Ok(notes(&attempt))
            }
            Err(refusal) => {
                report.refused(&refusal).await;
                Err(answer::refused(*refusal))
            }
        }
    }
}

/// Returns the notes about a connection that is allowed: they show the gate that its session is
/// recorded, also if another admission webhook denies the session afterwards.
fn notes(attempt: &Attempt<'_>) -> Notes {
    match attempt.ticket {
        Some(_) if attempt.way.has_options() => Notes::none().warn(gate::PERMITTED),
        _ => Notes::none(),
    }
}

/// Returns the way of the connection, if the hook handles it.
fn way(review: &Review<Value>) -> Option<ConnectionKind> {
    let way =
        ConnectionKind::from_resource(&review.resource.resource, review.subresource.as_deref())?;
    let operation = if way.has_options() {
        Operation::Connect
    } else {
        Operation::Update
    };
    (review.operation == operation).then_some(way)
}

impl Connect {
    async fn decide(
        &self,
        cx: &Cx,
        attempt: &Attempt<'_>,
        pod: &PodNow,
    ) -> Result<Allowed, Box<Refusal>> {
        let standings = self
            .connections
            .grants
            .list_for_user(attempt.namespace, attempt.user);
        let mut known = ConnectionFacts {
            pod: pod.as_named(),
            standings: &standings,
            past: None,
        };
        let matching = match connect::matching(attempt, &known) {
            Ok(matching) => matching,
            Err(_) if !self.refuses(attempt) => return Ok(Allowed::without_grant()),
            Err(_) => {
                // A past grant gives a better reason than no grant.
                known.past = self.connections.grants.past(attempt);
                connect::matching(attempt, &known)?
            }
        };
        let mut refusal = None;
        let began = Instant::now();
        for grant in matching {
            // A user may have many grants with slow policies.
            if refusal.is_some() && began.elapsed() >= policies::ALL_POLICIES_TIMEOUT {
                break;
            }
            match self.by(cx, attempt, grant).await {
                Ok(cut) => {
                    // A rewritten command would differ from the one that the user typed, and an
                    // unchanged one would not end.
                    if self.mode == Mode::Observing && matches!(cut, Cut::ByItself(_)) {
                        connect::unmangled(attempt.argv)?;
                    }
                    let mut all = standings.iter().map(|standing| &standing.grant);
                    let grant = all
                        .find(|one| std::ptr::eq(Arc::as_ptr(one), grant))
                        .cloned();
                    return Ok(Allowed { grant, cut });
                }
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        match refusal {
            Some(refusal) if self.refuses(attempt) => Err(refusal),
            _ => Ok(Allowed::without_grant()),
        }
    }

    /// Checks whether the connection requires a grant: for the gate in every namespace, as the gate
    /// opens no sessions for itself.
    fn refuses(&self, attempt: &Attempt<'_>) -> bool {
        let by_gate = self.mode == Mode::Observing && attempt.ticket.is_some();
        by_gate || self.mode == Mode::Enforcing
    }

    /// Returns how a session by this grant ends, if the terms of the grant allow the session.
    async fn by(&self, cx: &Cx, attempt: &Attempt<'_>, grant: &Grant) -> Result<Cut, Box<Refusal>> {
        if self.mode == Mode::Enforcing {
            self.locks.lets_use(grant, &attempt.person(), attempt.now)?;
            connect::unmangled(attempt.argv)?;
            if let (ConnectionKind::Exec | ConnectionKind::EphemeralContainer, Some(policy)) =
                (attempt.way, &grant.sessions.command_policy)
            {
                let container = grant.container(attempt.container);
                let answer = self.connections.policies.ask(policy, attempt, container);
                connect::policed(grant, answer.await)?;
            }
            self.connections.grants.confirm(&cx.client, grant).await?;
        }
        cut::session(attempt, grant)
    }
}

impl Allowed {
    fn without_grant() -> Self {
        Self {
            grant: None,
            cut: Cut::Not("no grant permits it".to_owned()),
        }
    }
}
