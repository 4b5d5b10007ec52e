//! The requests of sessions. The key of a session contains the name of its request, and a name may have stood for
//! several requests, one after the other; the audit records have their UIDs.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ListParams;
use oz_api::labels;
use oz_core::for_each_kind;
use oz_gating::live::Session;
use oz_gating::recording::SessionKey;
use oz_trail::{Action, Entry, Record};

use super::error::SessionError;
use super::shared_name::NamedRequest;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::{names, trail};

/// The actions that name the requests with recordings: by their grants, and by their recordings.
const NAMING: [Action; 3] = [
    Action::AccessGranted,
    Action::EmergencyGranted,
    Action::SessionRecorded,
];

/// The requests of sessions, as audit records name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionRequests {
    /// The UID of the request of each session.
    sessions: BTreeMap<SessionKey, String>,
    /// The UIDs of the requests with a namespace and a name.
    uids: BTreeMap<(String, String), BTreeSet<String>>,
}

impl SessionRequests {
    /// Reads the requests from the audit records of a namespace.
    ///
    /// # Errors
    /// The audit trail cannot be read.
    pub(super) async fn read(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let actions = NAMING.map(|action| action.to_string()).join(",");
        let selector = format!("{} in ({actions})", labels::AUDIT_KIND);
        let mut requests = Self::default();
        trail::pages(cluster, &selector, |object| {
            let entry = serde_json::from_value::<Entry>(object.data["spec"].clone());
            if let Ok(entry) = entry
                && entry.record.request.namespace == namespace
            {
                requests.add(&entry.record);
            }
        })
        .await?;
        Ok(requests)
    }

    /// Adds the request of an audit record, if the record is about a grant or a session.
    pub(super) fn add(&mut self, record: &Record) {
        let request = &record.request;
        if request.uid.is_empty() {
            return;
        }
        match record.action {
            Action::AccessGranted | Action::EmergencyGranted => {
                self.add_uid(&request.namespace, &request.name, &request.uid);
            }
            Action::SessionOpened
            | Action::SessionEnded
            | Action::SessionTerminated
            | Action::SessionRecorded
            | Action::SessionUnrecorded => {
                let key = record.details.get("session");
                if let Some(key) = key.and_then(|text| SessionKey::read(text)) {
                    self.add_session(key, &request.uid);
                }
            }
            _ => {}
        }
    }

    /// Adds a session of the request with this UID.
    pub(super) fn add_session(&mut self, key: SessionKey, uid: &str) {
        self.add_uid(&key.namespace, &key.request, uid);
        self.sessions.insert(key, uid.to_owned());
    }

    fn add_uid(&mut self, namespace: &str, name: &str, uid: &str) {
        let place = (namespace.to_owned(), name.to_owned());
        let uids = self.uids.entry(place).or_default();
        uids.insert(uid.to_owned());
    }

    /// Returns the UID of the request of a session, if it is known.
    #[must_use]
    pub(super) fn uid_of(&self, key: &SessionKey) -> Option<&str> {
        self.sessions.get(key).map(String::as_str)
    }

    /// Checks whether the name in a key stands for several requests.
    #[must_use]
    pub(super) fn is_shared(&self, key: &SessionKey) -> bool {
        let place = (key.namespace.clone(), key.request.clone());
        self.uids.get(&place).is_some_and(|uids| uids.len() > 1)
    }

    /// Returns the sessions of the request with this UID, in the order in which they were opened.
    pub(super) fn sessions_of(&self, uid: &str) -> Vec<SessionKey> {
        let of_it = self.sessions.iter().filter(|(_, of)| *of == uid);
        let mut keys: Vec<_> = of_it.map(|(key, _)| key.clone()).collect();
        keys.sort_by(|one, other| one.session.cmp(&other.session));
        keys
    }

    /// Checks that a name stands for at most one request.
    ///
    /// # Errors
    /// The name stands for several requests: the error names each.
    pub(super) fn is_one(&self, namespace: &str, name: &str) -> Result<(), SessionError> {
        let place = (namespace.to_owned(), name.to_owned());
        let uids = self.uids.get(&place).into_iter().flatten();
        let named = uids.map(|uid| NamedRequest {
            uid: uid.clone(),
            last: self.sessions_of(uid).pop(),
        });
        let mut requests: Vec<_> = named.collect();
        if requests.len() < 2 {
            return Ok(());
        }
        let session = |one: &NamedRequest| one.last.as_ref().map(|key| key.session.clone());
        requests.sort_by_key(|one| std::cmp::Reverse(session(one)));
        Err(SessionError::SharedName {
            namespace: namespace.to_owned(),
            request: name.to_owned(),
            requests,
        })
    }
}

/// The requests that a user named, by a name or by a UID.
pub(super) struct NamedRequests {
    namespace: String,
    /// The name.
    pub(super) name: String,
    /// The UID, if the user named one.
    pub(super) uid: Option<String>,
}

impl NamedRequests {
    /// Finds the requests that a word names in the chosen namespace: the existing request with this UID, or all of this
    /// name.
    ///
    /// # Errors
    /// The word has the form of a UID, and the requests cannot be listed.
    pub(super) async fn find(cluster: &Cluster, word: &str) -> Result<Self, SessionError> {
        let name = match names::is_uid(word) {
            true => name_of(cluster, word)
                .await
                .map_err(SessionError::Cluster)?,
            false => None,
        };
        Ok(Self {
            namespace: cluster.namespace.clone(),
            uid: name.is_some().then(|| word.to_owned()),
            name: name.unwrap_or_else(|| word.to_owned()),
        })
    }

    /// Returns the namespace and the name.
    pub(super) fn place(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }

    /// Checks whether an open session of this name is of one of these requests. A gate of an earlier release names no
    /// UIDs.
    pub(super) fn has(&self, session: &Session) -> bool {
        let of = &session.request_uid;
        of.is_empty() || self.uid.as_ref().is_none_or(|uid| of == uid)
    }
}

/// Returns the name of the request with this UID in the chosen namespace, if there is one.
async fn name_of(cluster: &Cluster, uid: &str) -> Result<Option<String>> {
    for_each_kind!(requests R => {
        let api = cluster.api::<R>();
        let all = cluster.answer(api.list_metadata(&ListParams::default())).await?;
        let mut all = all.items.into_iter();
        if let Some(found) = all.find(|one| one.metadata.uid.as_deref() == Some(uid)) {
            return Ok(found.metadata.name);
        }
    });
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_several_requests_is_denied_with_each_and_its_last_session() {
        let key = |text| SessionKey::read(text).unwrap();
        let granted = |requests: &mut SessionRequests, uid: &str| {
            requests.add_uid("shop", "mine", uid);
        };
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let rows: [Row<'_>; 5] = [
            (&[], &[], None),
            (&[("shop/mine/1", "a"), ("shop/mine/2", "a")], &["a"], None),
            (&[("shop/mine/1", "a"), ("shop/other/2", "b")], &[], None),
            (
                &[
                    ("shop/mine/1", "a"),
                    ("shop/mine/2", "b"),
                    ("shop/mine/3", "a"),
                ],
                &[],
                Some("UID a (last session 3), UID b (last session 2)"),
            ),
            (
                &[("shop/mine/1", "a")],
                &["a", "b"],
                Some("UID a (last session 1), UID b (no session)"),
            ),
        ];
        for (number, (sessions, grants, expected)) in rows.into_iter().enumerate() {
            let mut requests = SessionRequests::default();
            for (session, uid) in sessions {
                requests.add_session(key(session), uid);
            }
            grants.iter().for_each(|uid| granted(&mut requests, uid));
            let answer = requests.is_one("shop", "mine").err();
            let answer = answer.map(|error| error.to_string());
            let expected = expected.map(|requests| {
                format!("mine in namespace shop is the name of 2 requests: {requests}")
            });
            assert_eq!(answer, expected, "{number}");
        }
    }
}
