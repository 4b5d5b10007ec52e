//! The identity of users: the comparison of two requesters, the search for a requester in a list, and the user that a
//! binding names.

use std::borrow::Cow;

use k8s_openapi::api::rbac::v1 as rbac;
use oz_api::{Requester, names};

/// Checks whether two requesters are one person: the same user name, or the same UID of the identity provider.
#[must_use]
pub fn is_same_person(one: &Requester, other: &Requester) -> bool {
    one.user == other.user || (!one.uid.is_empty() && one.uid == other.uid)
}

/// Checks whether a requester is in one of these groups or is one of these users. A service account is listed only by
/// its own name.
#[must_use]
pub fn is_listed(groups: &[String], users: &[String], person: &Requester) -> bool {
    if users.contains(&person.user) {
        return true;
    }
    let is_in = |group: &String| groups.contains(group);
    person.service_account().is_none() && person.groups.iter().any(is_in)
}

/// Returns the name of the user that a binding names; `None` for a group, and for a service account without its
/// namespace, which Kubernetes requires.
#[must_use]
pub(super) fn bound_user(subject: &rbac::Subject) -> Option<Cow<'_, str>> {
    match subject.kind.as_str() {
        "User" => Some(Cow::Borrowed(&subject.name)),
        "ServiceAccount" => {
            let namespace = subject.namespace.as_deref()?;
            Some(Cow::Owned(names::service_account(namespace, &subject.name)))
        }
        _ => None,
    }
}
