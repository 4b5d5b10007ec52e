//! The classification of each Role and binding by a sweep over all of them: the watch shows only objects with oz's
//! labels, and a user can remove labels. The sealed decision identifies the owner of an object and the subjects of its
//! grant.

use std::collections::HashSet;

use jiff::Timestamp;
use oz_api::{Uid, labels, names};
use oz_trail::{Action, Decision, Record};

use super::grant::Grant;
use crate::controller::{Child, Live, Reference};
use crate::lifecycle::revoke::{self, Marks};
use crate::lifecycle::seal::{self, Keys};
use crate::transient;

/// The number of other Roles' names that are stored. Beyond it, a sweep cannot distinguish bindings to Roles that do
/// not exist from bindings to Roles that exist.
const MOST_NAMES: usize = 10_000;

/// The finding about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The object does not concern oz, or the watch shows it.
    Nothing,
    /// The object bears a decision of oz and is in its place, but the watch does not show it.
    Hidden(Box<Hidden>),
    /// The object is not oz's, and grants the access that oz grants: the reason for this finding.
    Foreign(String),
}

/// An object of oz that the watch does not show.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// Kind of the object that it was made for, as on its label [`labels::OWNER_KIND`].
    pub mark: String,
    /// UID of the object that it was made for.
    pub owner: String,
    /// The object itself.
    pub target: Reference,
    /// The change that makes the object ineffective, if a finalizer blocks its deletion.
    pub disarmed: Option<Child>,
    /// The audit record of its deletion.
    pub record: Record,
}

/// A sweep: first over all Roles, then over all bindings.
#[derive(Debug)]
pub struct Sweep<'a> {
    keys: &'a Keys,
    now: Timestamp,
    /// Roles of oz, by namespace and name.
    ours: HashSet<(Option<String>, String)>,
    /// Roles of other authors with names like those of oz's Roles.
    others: HashSet<(Option<String>, String)>,
}

impl<'a> Sweep<'a> {
    /// Creates a sweep without any observation.
    #[must_use]
    pub fn new(keys: &'a Keys, now: Timestamp) -> Self {
        Self {
            keys,
            now,
            ours: HashSet::new(),
            others: HashSet::new(),
        }
    }

    /// Classifies a Role.
    pub fn role(&mut self, live: &Live) -> Finding {
        let finding = self.sealed(live);
        let key = live.key();
        let Some(name) = key.name else {
            return finding.unwrap_or(Finding::Nothing);
        };
        let place = (key.namespace, name);
        let in_place = Grant::open_any(self.keys, &live.object.metadata)
            .is_some_and(|grant| grant.is_at(&key.kind, place.0.as_deref(), &place.1));
        if in_place {
            self.ours.insert(place);
        } else if is_named_by_oz(&place.1) && self.others.len() < MOST_NAMES {
            self.others.insert(place);
        }
        finding.unwrap_or(Finding::Nothing)
    }

    /// Classifies a RoleBinding or ClusterRoleBinding. All Roles must have been classified before.
    #[must_use]
    pub fn binding(&self, live: &Live) -> Finding {
        self.sealed(live).unwrap_or_else(|| self.bound(live))
    }

    /// Classifies an object that bears a decision of oz.
    fn sealed(&self, live: &Live) -> Option<Finding> {
        let metadata = &live.object.metadata;
        let (in_place, mark, request, record) =
            if let Some(grant) = Grant::open_any(self.keys, metadata) {
                let key = live.key();
                let in_place = key
                    .name
                    .is_some_and(|name| grant.is_at(&key.kind, key.namespace.as_deref(), &name));
                let record = self.record(live, |action, reason, message| {
                    grant.record(self.now, action, Decision::End, reason, message)
                });
                (in_place, grant.request.kind.clone(), grant.request, record)
            } else {
                let Some(grant) = transient::Grant::open_any(self.keys, live) else {
                    return retired(live);
                };
                let record = self.record(live, |action, reason, message| {
                    grant.record(self.now, action, Decision::End, reason, message)
                });
                (grant.is_of(live), grant.mark.clone(), grant.request, record)
            };
        if !in_place {
            return Some(if gives(live) {
                Finding::Foreign(format!(
                    "{} has the decision of oz about {} {}/{}, and differs from it",
                    live.key(),
                    request.kind,
                    request.namespace,
                    request.name
                ))
            } else {
                Finding::Nothing
            });
        }
        let marks = Marks {
            kind: &mark,
            uid: Uid::new(&request.uid),
        };
        if marks.are_on(metadata) {
            return Some(Finding::Nothing);
        }
        Some(Finding::Hidden(Box::new(Hidden {
            target: live.reference(),
            disarmed: revoke::disarmed(marks, live),
            owner: request.uid.clone(),
            mark,
            record,
        })))
    }

    fn record(&self, live: &Live, make: impl FnOnce(Action, &str, String) -> Record) -> Record {
        let message = format!(
            "{} had lost oz's labels, and its request has ended or does not exist: it is deleted",
            live.key()
        );
        make(Action::AccessRevoked, "Orphaned", message)
    }

    /// Classifies a binding that bears no decision of oz.
    fn bound(&self, live: &Live) -> Finding {
        let role = &live.object.data["roleRef"];
        let (Some("Role"), Some(name)) = (role["kind"].as_str(), role["name"].as_str()) else {
            return Finding::Nothing;
        };
        let key = live.key();
        let place = (key.namespace.clone(), name.to_owned());
        if !is_named_by_oz(name) || is_of_role(live, name) {
            return Finding::Nothing;
        }
        if self.ours.contains(&place) {
            return Finding::Foreign(format!(
                "{key} binds to Role {name} of oz, and was not created by oz"
            ));
        }
        let all_known = self.others.len() < MOST_NAMES;
        if all_known && !self.others.contains(&place) {
            return Finding::Foreign(format!(
                "{key} binds to Role {name}, which has a name that is reserved for oz and does not \
                    exist"
            ));
        }
        Finding::Nothing
    }
}

/// Checks whether an object has subjects or rules, and thus grants rights.
fn gives(live: &Live) -> bool {
    let mut fields = ["subjects", "rules"].into_iter();
    fields.any(|field| revoke::has_entries(live, field))
}

/// Returns the finding about an object with a decision of an earlier release. Objects with oz's labels are revoked with
/// their requests.
fn retired(live: &Live) -> Option<Finding> {
    let metadata = &live.object.metadata;
    let is_left = labels::owner_uid(metadata).is_none()
        && seal::is_retired_on(metadata, labels::GRANT)
        && gives(live);
    is_left.then(|| {
        Finding::Foreign(format!(
            "{} has a decision of an earlier release of oz, which is no longer valid, and does not \
                expire",
            live.key()
        ))
    })
}

/// Checks whether a name is reserved for the Roles of grants, or has the end of the names of a grant's objects: eight
/// digits of a UID.
fn is_named_by_oz(name: &str) -> bool {
    if names::is_grant_role(name) {
        return true;
    }
    let end = name.rsplit_once('-').map(|(_, end)| end);
    end.is_some_and(|end| {
        let is_digit = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
        end.len() == 8 && end.bytes().all(is_digit)
    })
}

/// Checks whether a binding belongs to this Role, by its name and its label.
fn is_of_role(live: &Live, role: &str) -> bool {
    let uid = labels::owner_uid(&live.object.metadata);
    let short: Option<String> = uid.map(|uid| uid.chars().take(8).collect());
    live.object.metadata.name.as_deref() == Some(role)
        && short.is_some_and(|short| role.ends_with(&format!("-{short}")))
}
