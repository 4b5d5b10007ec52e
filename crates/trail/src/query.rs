//! Which records somebody wants to see.

use jiff::Timestamp;
use oz_api::labels;

use super::chain::Entry;
use super::{Action, Decision};

/// What a record must be like; what is `None` does not matter.
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
    /// What was decided.
    pub decision: Option<Decision>,
    /// What happened.
    pub action: Option<Action>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

impl Query {
    /// Whether an entry is wanted.
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

    /// The label selector by which the API server can leave out most of what is not wanted. A grant
    /// and a pod may be given by name, which no label has.
    #[must_use]
    pub fn selector(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map(|user| (labels::AUDIT_USER, labels::value(user)));
        let decision = self
            .decision
            .map(|decision| (labels::AUDIT_DECISION, decision.to_string()));
        let action = self
            .action
            .map(|action| (labels::AUDIT_KIND, action.to_string()));
        let parts = [user, decision, action];
        let parts: Vec<String> = parts
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        parts.join(",")
    }
}
