//! The identity of users: the comparison of two requesters, and the search for a requester in a list.

use oz_api::Requester;

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
