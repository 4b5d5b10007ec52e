//! The open sessions of this process: listing, ending and watching them. The API server has checked that the user may
//! do so. A request to any replica is about the sessions of all.

mod register;
mod viewing;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use axum::http::{Method, Response};
use oz_api::Requester;
use oz_core::access::seal::Keys;
use oz_gating::live::{self, Listing, Live as LivePath};

pub(crate) use self::register::{Entry, Live, Opened, Register};
use crate::answer::{Refused, json_response, not_allowed, over};
use crate::authenticate::Caller;
use crate::journal::Journal;
use crate::peers::{Peers, Question};

/// The requests about open sessions.
pub(crate) struct LiveSessions {
    pub(crate) register: Arc<Register>,
    /// The other replicas.
    pub(crate) peers: Peers,
    /// The keys that seal the peer tokens.
    pub(crate) keys: Keys,
    pub(crate) journal: Journal,
    /// The name of this replica.
    pub(crate) replica: String,
    /// The number of the next view.
    pub(crate) next: AtomicU64,
}

impl LiveSessions {
    /// Returns the response about open sessions, from all replicas if the caller is not one.
    pub(crate) async fn answer(
        &self,
        caller: &Caller,
        asked: &LivePath,
        method: &Method,
        target: &str,
    ) -> Result<Response<Body>, Refused> {
        let question = Question {
            user: &caller.user,
            method,
            target,
            keys: &self.keys,
            clock: &*self.journal.clock,
        };
        let key = match asked {
            LivePath::List { .. } if method == Method::GET => {
                let mut listing = self.listing(asked);
                if !caller.is_replica {
                    self.peers.add_to(&mut listing, &question).await;
                }
                return json_response(&listing);
            }
            LivePath::List { .. } => return Err(not_allowed()),
            LivePath::One(key) | LivePath::Watch(key) => key,
        };
        let query = target.split_once('?').map(|(_, query)| query);
        match self.answer_here(&caller.user, asked, method, query).await? {
            Some(answer) => Ok(answer),
            None if caller.is_replica => Err(over(key)),
            None => self.peers.find(key, &question).await,
        }
    }

    /// Returns the response to a request about one session, from this process only; `None` if the process does not
    /// have the session.
    async fn answer_here(
        &self,
        user: &Requester,
        asked: &LivePath,
        method: &Method,
        query: Option<&str>,
    ) -> Result<Option<Response<Body>>, Refused> {
        match (asked, method) {
            (LivePath::One(key), &Method::GET) => {
                let Some(live) = self.register.get(key) else {
                    return Ok(None);
                };
                json_response(&live.describe(self.journal.now(), &self.replica)).map(Some)
            }
            (LivePath::One(key), &Method::DELETE) => {
                let options = query.map(|query| form_urlencoded::parse(query.as_bytes()));
                let options: Vec<_> = options.into_iter().flatten().collect();
                let options = options.iter().map(|(name, value)| (&**name, &**value));
                let reason = live::reason(options)?;
                let Some(live) = self.register.get(key) else {
                    return Ok(None);
                };
                live.end(user, reason.as_deref());
                json_response(&live.describe(self.journal.now(), &self.replica)).map(Some)
            }
            (LivePath::Watch(key), &Method::GET) => match self.register.get(key) {
                Some(live) => self.watch(user, live).await.map(Some),
                None => Ok(None),
            },
            _ => Err(not_allowed()),
        }
    }

    /// Returns the open sessions of a request in this process.
    fn listing(&self, asked: &LivePath) -> Listing {
        let (namespace, request) = asked.request();
        let (now, replica) = (self.journal.now(), &self.replica);
        let sessions = self.register.list_for_request(namespace, request);
        Listing {
            sessions: sessions
                .iter()
                .map(|live| live.describe(now, replica))
                .collect(),
            incomplete: Vec::new(),
        }
    }
}
