//! The queries of ticket checks and on-call checks. A plan names the check to query ([`Ask`]); the
//! result is stored, and reconciles the affected requests. Each query is a separate task, with at
//! most [`ask::AT_ONCE`] concurrent ones for each check, and one for each subject, a ticket or a
//! requester, regardless of the number of its requests: no decision and no end waits for a query. Users take turns
//! ([`queue`]).

mod ask;
mod meters;
mod queue;
#[cfg(test)]
mod recipes;
#[cfg(test)]
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use oz_core::access::kind::Kind;
use oz_core::access::{stamp, ticket};
use oz_core::controller::{Effect, Failure};
use oz_core::kinds::AccessRequest;
use oz_core::lifecycle::window::{after, has_come};
use oz_core::tickets::{Answer, Ask, CheckTerms, Checks, Person, Said, Subject, Tickets};
use oz_engine::{Port, Signal};
use oz_outbound::{Allowed, Proxies};
use oz_runtime::Clock;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use ask::Server;
use meters::Meters;

/// The maximum number of stored results, one per subject and check.
const MOST: usize = 20_000;
/// The number of stored results about change tickets of one user from which its waiting requests get no further ones.
const SHARE: usize = MOST / 20;
/// The number of stored results from which unused ones are removed.
const MANY: usize = 1_000;
/// The minimum interval between two queries about one subject, regardless of their origin.
const APART: SignedDuration = SignedDuration::from_secs(1);

/// The known results about tickets and requesters. Clones share them.
#[derive(Clone)]
pub(crate) struct TicketChecks(Arc<Shared>);

struct Shared {
    servers: BTreeMap<String, Server>,
    terms: Arc<BTreeMap<String, CheckTerms>>,
    /// Whether a check is about requesters.
    has_on_call_checks: bool,
    clock: Arc<dyn Clock>,
    signal: Signal,
    meters: Meters,
    known: Mutex<Known>,
}

/// A subject and a check.
type Key = (Subject, String);

/// The results by subject and check.
type Known = BTreeMap<Key, Entry>;

/// The state of the query of one check for one subject.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Query {
    #[default]
    None,
    /// The query waits for a pause, or for a turn.
    Queued,
    Running,
}

/// The result of one check for one subject.
#[derive(Default)]
struct Entry {
    said: Option<Said>,
    query: Query,
    /// The users of the requests that use the result, with the time of their last query.
    users: BTreeMap<String, Timestamp>,
    /// The UIDs of the affected requests, and whether they wait for any result.
    concerned: BTreeMap<String, bool>,
}

impl TicketChecks {
    /// Creates the ticket checks of a configuration, with their Secrets in a directory.
    ///
    /// # Errors
    /// A check has an invalid URL, or an invalid expression for responses.
    pub(crate) fn new(
        checks: &Checks,
        secrets: &Path,
        proxies: Proxies,
        clock: impl Clock,
    ) -> anyhow::Result<Self> {
        let hosts = checks.allowed_hosts.iter().map(|host| host.to_lowercase());
        let allowed = Allowed {
            hosts: Arc::new(hosts.collect()),
            proxies,
            ..Allowed::default()
        };
        let terms = Arc::new(checks.terms());
        let meters = Meters::default();
        let mut servers = BTreeMap::new();
        for (name, check) in &checks.checks {
            let server = Server::new((name, check), secrets, allowed.clone())
                .with_context(|| format!("invalid configuration: tickets.checks.{name}"))?;
            meters.away(name).set(0);
            servers.insert(name.clone(), server);
        }
        Ok(Self(Arc::new(Shared {
            servers,
            terms,
            has_on_call_checks: checks.checks.values().any(|it| !it.is_ticket_check()),
            clock: Arc::new(clock),
            signal: Signal::default(),
            meters,
            known: Mutex::default(),
        })))
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.0.meters.register(registry);
    }

    /// Returns the signal that reconciles requests.
    pub(crate) fn signal(&self) -> &Signal {
        &self.0.signal
    }

    /// Returns the known results about the ticket and the requester of a request. The decision selects
    /// those about the user of its seal.
    pub(crate) fn about<K: Kind>(&self, request: &K::Request) -> Tickets {
        let shared = &*self.0;
        let mut tickets = self.about_ticket(request.terms().ticket);
        let users = match shared.has_on_call_checks {
            true => users::<K>(request),
            false => BTreeSet::new(),
        };
        let known = shared.lock();
        for user in users {
            let first = Subject::Requester(Person {
                user: user.clone(),
                ..Person::default()
            });
            for ((subject, check), entry) in known.range((first, String::new())..) {
                let Subject::Requester(person) = subject else {
                    break;
                };
                if person.user != user {
                    break;
                }
                if let Some(said) = &entry.said {
                    let of_person = tickets.on_call.entry(person.clone()).or_default();
                    of_person.insert(check.clone(), said.clone());
                }
            }
        }
        tickets
    }

    /// Returns the known results about a change ticket, if there is one.
    pub(crate) fn about_ticket(&self, ticket: Option<&str>) -> Tickets {
        let shared = &*self.0;
        let mut tickets = Tickets {
            checks: Some(Arc::clone(&shared.terms)),
            ..Tickets::default()
        };
        let Some(ticket) = ticket else {
            return tickets;
        };
        let first = Subject::Ticket(ticket.to_owned());
        let known = shared.lock();
        for ((_, check), entry) in known
            .range((first.clone(), String::new())..)
            .take_while(|((subject, _), _)| *subject == first)
        {
            let said = entry.said.clone();
            tickets.said.extend(said.map(|said| (check.clone(), said)));
        }
        tickets
    }

    /// Queues a query about a subject, unless one is running. A second query about it waits for a pause.
    fn want(&self, wanted: Ask) -> Result<(), Failure> {
        let shared = &*self.0;
        let now = shared.clock.now();
        let mut known = shared.lock();
        let (key, user, is_waiting) = ((wanted.subject, wanted.check), wanted.user, wanted.waits);
        let entry = shared.admit(&mut known, &key, &user, is_waiting)?;
        let waits = entry.concerned.entry(wanted.request).or_default();
        *waits |= is_waiting;
        if entry.query == Query::Running {
            return Ok(());
        }
        entry.query = Query::Queued;
        let said = entry.said.as_ref();
        let next = said.map_or(now, |said| after(said.asked_at, APART));
        let pause = next.duration_since(now).clamp(SignedDuration::ZERO, APART);
        if pause.is_zero() {
            self.queue(&mut known, (user, is_waiting), key);
            return Ok(());
        }
        let checks = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause.unsigned_abs()).await;
            let mut known = checks.0.lock();
            checks.queue(&mut known, (user, is_waiting), key);
        });
        Ok(())
    }

    /// Queues a query for a user with an object that waits or is a grant, unless a turn of another user began it during the
    /// pause.
    fn queue(&self, known: &mut Known, (user, waits): (String, bool), key: Key) {
        let Some(entry) = known.get_mut(&key) else {
            return;
        };
        if entry.query != Query::Queued {
            return;
        }
        let (subject, check) = &key;
        if let Some(server) = self.0.servers.get(check) {
            server.queue.lock().push(user, waits, subject.clone());
            self.begin(known, check, server);
        } else {
            entry.query = Query::Running;
            tokio::spawn(self.clone().ask(key, None));
        }
    }

    /// Begins the next queries of a check, up to the maximum of concurrent ones.
    fn begin(&self, known: &mut Known, check: &str, server: &Server) {
        let mut queue = server.queue.lock();
        while let Ok(turn) = Arc::clone(&server.turns).try_acquire_owned() {
            let Some(subject) = queue.pop() else {
                return;
            };
            let key = (subject, check.to_owned());
            if let Some(entry) = known.get_mut(&key) {
                entry.query = Query::Running;
                tokio::spawn(self.clone().ask(key, Some(turn)));
            }
        }
    }

    /// Queries in a turn of the check, begins the next query, and reconciles the affected requests.
    async fn ask(self, key: Key, turn: Option<OwnedSemaphorePermit>) {
        let shared = &*self.0;
        let (subject, check) = &key;
        let server = shared.servers.get(check);
        let (asked_at, began) = (shared.clock.now(), Instant::now());
        let answer = match server {
            Some(server) => server.ask(subject).await,
            None => {
                Answer::Away("the operator has no ticket check of this name any more".to_owned())
            }
        };
        if server.is_some() {
            shared.count(check, &answer, began.elapsed());
        }
        let concerned = {
            let mut known = shared.lock();
            drop(turn);
            if let Some(server) = server {
                self.begin(&mut known, check, server);
            }
            let Some(entry) = known.get_mut(&key) else {
                return;
            };
            let away = matches!(answer, Answer::Away(_));
            let since = entry.said.as_ref().and_then(|said| said.away_since);
            entry.query = Query::None;
            entry.said = Some(Said {
                asked_at,
                away_since: away.then(|| since.unwrap_or(asked_at)),
                answer: answer.clone(),
            });
            std::mem::take(&mut entry.concerned)
        };
        for (request, waits) in concerned {
            if waits || answer != Answer::Accepted {
                shared.signal.raise(&request);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Returns the entry for a query, which counts for its user from now on. A request that waits gets none beyond
    /// the share of its user. A grant does: otherwise, waiting requests of its user would prevent the queries that
    /// can end it. Only change tickets count: users choose their names.
    ///
    /// # Errors
    /// The user, or all users together, have the maximum number of entries.
    fn admit<'a>(
        &self,
        known: &'a mut Known,
        key: &Key,
        user: &str,
        waits: bool,
    ) -> Result<&'a mut Entry, Failure> {
        if known.len() >= MANY && !known.contains_key(key) {
            known.retain(|(_, check), entry| {
                entry.query != Query::None || !self.is_old(check, entry)
            });
            if known.len() >= MOST {
                return Err(Failure::transient(
                    ticket::TOO_MANY,
                    format!(
                        "{MOST} change tickets and requesters are being checked already, which \
                        is the maximum; try again"
                    ),
                ));
            }
        }
        let counts = |(subject, check): &Key, entry: &Entry| {
            let asked = entry.users.get(user).filter(|_| subject.is_ticket());
            asked.is_some_and(|at| !self.is_past(check, *at))
        };
        let is_counted = known.get(key).is_some_and(|entry| counts(key, entry));
        if waits && key.0.is_ticket() && !is_counted {
            let used = known.iter().filter(|(key, entry)| counts(key, entry));
            if used.count() >= SHARE {
                return Err(Failure::transient(
                    ticket::TOO_MANY,
                    format!(
                        "{SHARE} change tickets are being checked for user {user} already, which is the maximum for one user; delete requests, bindings or \
                        runs that are not needed"
                    ),
                ));
            }
        }
        let entry = known.entry(key.clone()).or_default();
        entry.users.retain(|_, at| !self.is_past(&key.1, *at));
        entry.users.insert(user.to_owned(), self.clock.now());
        Ok(entry)
    }

    /// Checks whether no request uses the result any more.
    fn is_old(&self, check: &str, entry: &Entry) -> bool {
        let said = entry.said.as_ref();
        said.is_none_or(|said| self.is_past(check, said.asked_at))
    }

    /// Checks whether a query at this time is the last one: a request that uses the result queries at each interval.
    fn is_past(&self, check: &str, asked_at: Timestamp) -> bool {
        let terms = self.terms.get(check).copied();
        let every = terms.unwrap_or(CheckTerms::UNKNOWN).interval;
        let long = every * 2 + SignedDuration::from_mins(1);
        has_come(self.clock.now(), after(asked_at, long))
    }

    fn count(&self, check: &str, answer: &Answer, took: Duration) {
        self.meters.asked(check, answer, took);
        let is_away = self.meters.away(check);
        match answer {
            Answer::Away(why) => {
                if is_away.set(1) == 0 {
                    tracing::warn!(check, why, "the server of a ticket check does not respond");
                }
            }
            Answer::Accepted | Answer::Refused(_) => {
                if is_away.set(0) == 1 {
                    tracing::info!(check, "the server of a ticket check responds again");
                }
            }
        }
    }
}

/// Returns the names of the users who may be the requester: of the stamp, and of the status, which keeps
/// the name if a client removed the stamp of a granted request.
fn users<K: Kind>(request: &K::Request) -> BTreeSet<String> {
    let stamped = stamp::parse_unverified(request.meta()).map(|stamp| stamp.requester.user);
    let status = request.status().and_then(|status| status.requester.clone());
    stamped.into_iter().chain(status).collect()
}

impl Port for TicketChecks {
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        let wanted = Ask::try_from(effect).and_then(|wanted| self.want(wanted));
        futures::future::ready(wanted.map(|()| Value::Null)).boxed()
    }
}
