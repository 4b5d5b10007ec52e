//! Sessions that have ended, from the audit trail.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_gating::recording::{ENCRYPTED_TO, SessionKey};
use oz_trail::{Action, Entry, Query, Record};

use super::requests::SessionRequests;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::trail;

/// A session that has ended, or that has a stored recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// NAMESPACE/REQUEST/SESSION.
    pub session: String,
    /// The UID of the request; empty if no record names it.
    pub request_uid: String,
    /// True if the name of the request stands for several requests.
    pub shares_name: bool,
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

/// Returns the sessions that a query matches, the oldest first. A name may stand for several requests: their sessions
/// are returned, each with the UID of its request.
///
/// # Errors
/// The audit trail cannot be read.
pub async fn list(cluster: &Cluster, query: &Query) -> Result<Vec<Past>> {
    let entries = trail::entries(cluster, query).await?;
    Ok(from_entries(entries, query))
}

/// Returns the sessions of audit records, see [`list`].
fn from_entries(entries: Vec<Entry>, query: &Query) -> Vec<Past> {
    let mut requests = SessionRequests::default();
    let mut sessions: BTreeMap<String, SessionRecords> = BTreeMap::new();
    // A record of a session may lack the UID of the request that others of the session have.
    let of_any = Query {
        grant: None,
        ..query.clone()
    };
    for entry in entries.into_iter().filter(|entry| of_any.matches(entry)) {
        let record = entry.record;
        requests.add(&record);
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
    let found = sessions.map(|(key, seen)| Past::new(key, &seen).with_request(&requests));
    let is_wanted = |past: &Past| {
        let wanted = query.grant.as_ref();
        wanted.is_none_or(|grant| past.request_uid == *grant || past.request() == *grant)
    };
    let mut found: Vec<Past> = found.filter(is_wanted).collect();
    found.sort_by(|one, other| (&one.opened, &one.session).cmp(&(&other.opened, &other.session)));
    found
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

    /// Adds the request of the session.
    fn with_request(mut self, requests: &SessionRequests) -> Self {
        if let Some(key) = SessionKey::read(&self.session) {
            let uid = requests.uid_of(&key);
            if let Some(uid) = uid {
                uid.clone_into(&mut self.request_uid);
            }
            self.shares_name = requests.is_shared(&key);
        }
        self
    }

    /// Returns the name of the request.
    fn request(&self) -> &str {
        self.session.split('/').nth(1).unwrap_or_default()
    }

    /// Checks whether the recording is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        !self.encrypted_to.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use oz_trail::RequestRef;

    use super::*;

    /// Creates an audit record about `request`, and about its session if one is given.
    fn record(action: Action, (name, uid): (&str, &str), session: Option<&str>) -> Entry {
        let mut record = Record {
            action,
            request: RequestRef {
                kind: "ExecAccessRequest".into(),
                namespace: "shop".into(),
                name: name.into(),
                uid: uid.into(),
            },
            ..Record::default()
        };
        if let Some(session) = session {
            record = record.detail("session", format!("shop/{name}/{session}"));
        }
        Entry {
            link: oz_trail::Link::default(),
            record,
        }
    }

    #[test]
    fn name_of_several_requests_lists_the_sessions_of_each_with_its_uid() {
        let (first, second, other) = (("mine", "uid-1"), ("mine", "uid-2"), ("other", "uid-3"));
        let unnamed = ("mine", "");
        let (ended, recorded) = (Action::SessionEnded, Action::SessionRecorded);
        let granted = Action::AccessGranted;
        let one = || record(ended, first, Some("a"));
        let two = || record(ended, second, Some("b"));
        let three = || record(ended, other, Some("c"));
        let is_one = |session, uid| (session, uid, false);
        let is_shared = |session, uid| (session, uid, true);
        /// Records, the UID in the query, and what is shown.
        type Row<'a> = (Vec<Entry>, Option<&'a str>, Vec<(&'a str, &'a str, bool)>);
        let rows: Vec<Row<'_>> = vec![
            (
                vec![one(), three()],
                Some("mine"),
                vec![is_one("mine/a", "uid-1")],
            ),
            (
                vec![one(), two(), three()],
                Some("mine"),
                vec![is_shared("mine/a", "uid-1"), is_shared("mine/b", "uid-2")],
            ),
            (
                vec![one(), two(), three()],
                Some("uid-2"),
                vec![is_shared("mine/b", "uid-2")],
            ),
            (
                vec![one(), two(), three()],
                None,
                vec![
                    is_shared("mine/a", "uid-1"),
                    is_shared("mine/b", "uid-2"),
                    is_one("other/c", "uid-3"),
                ],
            ),
            // The second request has no session yet.
            (
                vec![one(), record(granted, second, None)],
                Some("mine"),
                vec![is_shared("mine/a", "uid-1")],
            ),
            // The record of an interrupted recording may name no UID; another record of the session does.
            (
                vec![one(), record(recorded, unnamed, Some("a"))],
                Some("uid-1"),
                vec![is_one("mine/a", "uid-1")],
            ),
            (
                vec![record(recorded, unnamed, Some("a"))],
                Some("mine"),
                vec![is_one("mine/a", "")],
            ),
            (vec![one()], Some("uid-9"), vec![]),
        ];
        for (number, (entries, grant, expected)) in rows.into_iter().enumerate() {
            let query = Query {
                grant: grant.map(str::to_owned),
                ..Query::default()
            };
            let found = from_entries(entries, &query);
            let found: Vec<_> = found
                .iter()
                .map(|past| {
                    let (_, session) = past.session.split_once('/').unwrap();
                    (session, past.request_uid.as_str(), past.shares_name)
                })
                .collect();
            assert_eq!(found, expected, "{number}");
        }
    }
}
