//! The register of the open sessions of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use oz_api::{RecordingConfig, Requester};
use oz_core::connect::Refusal;
use oz_gating::live::{self, Watcher};
use oz_gating::moderation::Phase;
use oz_gating::recording::{About, SessionKey};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::idle::Idle;
use crate::moderated::Moderation;
use crate::socket::Spoken;
use crate::traffic::Traffic;

/// The open sessions of this process.
#[derive(Debug, Default)]
pub(crate) struct Register {
    open: Mutex<BTreeMap<SessionKey, Arc<Live>>>,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) data: Opened,
    pub(crate) traffic: Traffic,
    /// True if the gate reads the content of the session; set once its protocol was agreed on.
    watchable: OnceLock<bool>,
    watchers: Mutex<Vec<Watcher>>,
    ended: watch::Sender<Option<(Requester, Refusal)>>,
}

/// The data of a session.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) key: SessionKey,
    pub(crate) about: About,
    pub(crate) user: Requester,
    pub(crate) until: Timestamp,
    /// The recording that the template requests, if it requests one.
    pub(crate) recording: Option<RecordingConfig>,
    pub(crate) recorded: bool,
    pub(crate) idle: Arc<Idle>,
    /// The required moderators, if the session requires any.
    pub(crate) moderation: Option<Moderation>,
}

/// An entry that keeps a session in the register until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    register: Arc<Register>,
    key: SessionKey,
}

impl Register {
    /// Adds a session to the register.
    pub(crate) fn enter(self: &Arc<Self>, opened: Opened) -> (Arc<Live>, Entry) {
        let watchable = OnceLock::new();
        let mut traffic = Traffic::default();
        if opened.moderation.is_some() {
            // The gate asks the API server for no protocol that it cannot show.
            let _ = watchable.set(true);
            traffic = Traffic::moderated();
        }
        let key = opened.key.clone();
        let live = Arc::new(Live {
            data: opened,
            traffic,
            watchable,
            watchers: Mutex::default(),
            ended: watch::Sender::new(None),
        });
        self.open().insert(key.clone(), Arc::clone(&live));
        let entry = Entry {
            register: Arc::clone(self),
            key,
        };
        (live, entry)
    }

    /// Returns the sessions of a request.
    pub(crate) fn list_for_request(&self, namespace: &str, request: &str) -> Vec<Arc<Live>> {
        let open = self.open();
        let theirs = open.values().filter(|live| {
            let key = &live.data.key;
            key.namespace == namespace && key.request == request
        });
        theirs.cloned().collect()
    }

    /// Returns one session.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Live>> {
        self.open().get(key).cloned()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Arc<Live>>> {
        self.open.lock()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let live = self.register.open().remove(&self.key);
        if let Some(live) = live {
            // In any case: a session that has ended has no viewers.
            live.traffic.end("the session has ended");
        }
    }
}

impl Live {
    /// Records the protocol to which the API server has agreed.
    pub(crate) fn agreed(&self, spoken: Option<Spoken>) {
        // If the value is already set, the API server has agreed to the same protocol.
        let _ = self
            .watchable
            .set(spoken.is_some_and(|spoken| spoken.words.is_some()));
    }

    /// Checks whether the content of the session can be shown.
    pub(super) fn is_watchable(&self) -> bool {
        self.watchable.get() == Some(&true)
    }

    /// Waits until a user ends the session, and returns the message for its user.
    pub(crate) async fn ended(&self) -> Refusal {
        let mut ended = self.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await;
        match ended.ok().and_then(|ended| ended.clone()) {
            Some((_, why)) => why,
            // The sender lives as long as this value.
            None => std::future::pending().await,
        }
    }

    /// Returns the user who ended the session, if a user did.
    pub(crate) fn ended_by(&self) -> Option<Requester> {
        self.ended.borrow().as_ref().map(|(by, _)| by.clone())
    }

    pub(super) fn end(&self, by: &Requester, reason: Option<&str>) {
        let why = live::ended(&by.user, reason);
        // Only the first call ends the session.
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some((by.clone(), why));
            }
            first
        });
    }

    pub(super) fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock()
    }

    /// Returns the session as the listing shows it.
    pub(super) fn describe(&self, now: Timestamp, replica: &str) -> live::Session {
        let data = &self.data;
        let idle = SignedDuration::try_from(data.idle.for_how_long());
        let idle = idle.unwrap_or(SignedDuration::MAX);
        let (bytes_in, bytes_out) = self.traffic.bytes();
        let about = &data.about;
        live::Session {
            session: data.key.to_string(),
            request_uid: about.request_uid.clone(),
            user: data.user.user.clone(),
            pod: about.pod.clone(),
            container: about.container.clone(),
            way: about.way.clone(),
            command: about.command.clone(),
            command_digest: about.command_digest.clone(),
            opened_at: about.opened_at,
            idle_since: now.saturating_sub(idle).unwrap_or(now).max(about.opened_at),
            until: data.until,
            bytes_in,
            bytes_out,
            recorded: data.recorded,
            watchable: self.is_watchable(),
            watchers: self.watchers().clone(),
            replica: replica.to_owned(),
            state: match data.moderation.as_ref().map(Moderation::phase) {
                None | Some(Phase::Open) => live::State::Open,
                Some(Phase::Waiting(_) | Phase::ViewerTimeout) => live::State::Waiting,
                Some(Phase::Paused(_) | Phase::ViewerReturnTimeout) => live::State::Paused,
            },
            moderation: data
                .moderation
                .as_ref()
                .map(|moderation| moderation.config.clone()),
        }
    }
}
