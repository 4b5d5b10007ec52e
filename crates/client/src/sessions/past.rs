//! Sessions that have ended, from the audit trail.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_gating::recording::ENCRYPTED_TO;
use oz_trail::{Action, Query, Record};

use crate::cluster::Cluster;
use crate::failure::Result;
use crate::trail;

/// A session that has ended, or that has a stored recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// NAMESPACE/REQUEST/SESSION.
    pub session: String,
    /// The user; empty if the record names none.
    pub user: String,
    /// The pod; empty if the record names none.
    pub pod: String,
    /// The kind of connection; empty until the end is recorded.
    pub way: String,
    /// The time at which the session was opened.
    pub opened: Option<Timestamp>,
    /// The time at which it ended.
    pub ended: Option<Timestamp>,
    /// The reason for its end; empty until the end is recorded.
    pub end: String,
    /// The exit code.
    pub exit: Option<String>,
    /// The extent of the recording.
    pub recorded: Recorded,
    /// The number of parts of the recording.
    pub parts: Option<String>,
    /// The recipients to which the recording is encrypted; none if it is not encrypted.
    pub encrypted_to: Vec<String>,
}

/// The extent of the recording of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing is recorded.
    #[default]
    No,
    /// All of it.
    Whole,
    /// Some of it.
    InPart,
    /// The part until the gate stopped.
    UntilStop,
}

/// The audit records of one session.
#[derive(Default)]
struct SessionRecords {
    ended: Option<Record>,
    recorded: Option<Record>,
    unrecorded: bool,
}

/// Returns the sessions that a query matches, the oldest first.
///
/// # Errors
/// The audit trail cannot be read.
pub async fn list(cluster: &Cluster, query: &Query) -> Result<Vec<Past>> {
    let entries = trail::entries(cluster, query).await?;
    let mut sessions: BTreeMap<String, SessionRecords> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| query.matches(entry)) {
        let record = entry.record;
        let Some(key) = record.details.get("session").cloned() else {
            continue;
        };
        match record.action {
            Action::SessionEnded | Action::SessionTerminated => {
                sessions.entry(key).or_default().ended = Some(record)
            }
            Action::SessionRecorded => sessions.entry(key).or_default().recorded = Some(record),
            Action::SessionUnrecorded => sessions.entry(key).or_default().unrecorded = true,
            _ => {}
        }
    }
    let sessions = sessions.into_iter();
    let mut found: Vec<Past> = sessions.map(|(key, seen)| Past::new(key, &seen)).collect();
    found.sort_by(|one, other| (&one.opened, &one.session).cmp(&(&other.opened, &other.session)));
    Ok(found)
}

impl Past {
    fn new(session: String, seen: &SessionRecords) -> Self {
        let mut past = Self {
            session,
            ..Self::default()
        };
        if let Some(record) = seen.ended.as_ref().or(seen.recorded.as_ref()) {
            if let Some(user) = &record.user {
                past.user.clone_from(&user.user);
            }
            if let Some(pod) = &record.pod {
                past.pod.clone_from(&pod.name);
            }
        }
        if let Some(record) = &seen.ended {
            let detail = |name: &str| record.details.get(name);
            if let Some(way) = detail("way") {
                past.way.clone_from(way);
            }
            past.opened = detail("openedAt").and_then(|at| at.parse().ok());
            past.ended = Some(record.time);
            past.end.clone_from(&record.reason);
            past.exit = detail("exitCode").cloned();
        }
        if let Some(record) = &seen.recorded {
            past.parts = record.details.get("parts").cloned();
            let recipients = record.details.get(ENCRYPTED_TO).into_iter();
            let recipients = recipients.flat_map(|all| all.split(','));
            past.encrypted_to = recipients.map(str::to_owned).collect();
            past.recorded = match (&past.parts, seen.unrecorded) {
                (None, _) => Recorded::No,
                (Some(_), true) => Recorded::InPart,
                (Some(_), false) if record.reason == "Interrupted" => Recorded::UntilStop,
                (Some(_), false) => Recorded::Whole,
            };
        }
        past
    }

    /// Checks whether the recording is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        !self.encrypted_to.is_empty()
    }
}
