//! The selection of records that a user requests.

use jiff::Timestamp;
use oz_api::labels;

use super::chain::Entry;
use super::{Action, Decision};

/// The conditions on a record; `None` matches every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The user's name.
    pub user: Option<String>,
    /// The request, by name or UID.
    pub grant: Option<String>,
    /// The pod, by name or UID.
    pub pod: Option<String>,
    /// The namespace of the request.
    pub namespace: Option<String>,
    /// The decision.
    pub decision: Option<Decision>,
    /// The action.
    pub action: Option<Action>,
    /// The earliest time, included.
    pub since: Option<Timestamp>,
    /// The latest time, not included.
    pub until: Option<Timestamp>,
}

impl Query {
    /// Checks whether an entry matches.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        fn is<T>(wanted: Option<&T>, holds: impl Fn(&T) -> bool) -> bool {
            wanted.is_none_or(holds)
        }
        let record = &entry.record;
        let user = |name: &String| record.user.as_ref().is_some_and(|user| user.user == *name);
        let grant = |name: &String| [&record.request.name, &record.request.uid].contains(&name);
        let pod = |name: &String| {
            let pod = record.pod.as_ref();
            pod.is_some_and(|pod| [&pod.name, &pod.uid].contains(&name))
        };
        is(self.user.as_ref(), user)
            && is(self.grant.as_ref(), grant)
            && is(self.pod.as_ref(), pod)
            && is(self.namespace.as_ref(), |name| {
                record.request.namespace == *name
            })
            && is(self.decision.as_ref(), |decision| {
                record.decision == *decision
            })
            && is(self.action.as_ref(), |action| record.action == *action)
            && is(self.since.as_ref(), |since| record.time >= *since)
            && is(self.until.as_ref(), |until| record.time < *until)
    }

    /// Returns the label selector by which the API server leaves out most of the entries that do not match. A user may
    /// specify a grant and a pod by name, which is not a label.
    #[must_use]
    pub fn selector(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map(|user| (labels::AUDIT_USER, labels::value(user)));
        let decision = self
            .decision
            .map(|decision| (labels::AUDIT_DECISION, decision.to_string()));
        let action = self.action.map(|action| match action.former_name() {
            Some(former) => format!("{} in ({action},{former})", labels::AUDIT_KIND),
            None => format!("{}={action}", labels::AUDIT_KIND),
        });
        let equal = [user, decision].into_iter().flatten();
        let mut parts: Vec<String> = equal.map(|(key, value)| format!("{key}={value}")).collect();
        parts.extend(action);
        parts.join(",")
    }
}
