//! The choice of a reserved name for the Role of a grant. For a binding to a name that its author may `bind`, the API
//! server does not check the Role, for which a grant would have to wait. The data here only avoids attempts with names
//! that are in use: the creation of the Role decides, and the decision is the sealed grant on it.
//! See docs/adr/0026-names-that-are-reserved.md.

use std::collections::BTreeMap;
use std::time::Duration;

use oz_api::names::{GRANT_ROLES, grant_role, grant_role_number};
use sha2::{Digest, Sha256};

/// The time for which a name is skipped after it was found in use by others.
const PASSED_OVER: Duration = Duration::from_secs(60);
/// The number of such names from which on a namespace gets none of the reserved names: another user takes them, and a
/// grant does not wait for attempts with one after the other.
const MOST_TAKEN: usize = 3;

/// The reserved names of one namespace that are known to be in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleNames(BTreeMap<u16, Holder>);

#[derive(Clone, Debug, PartialEq)]
enum Holder {
    /// The request with this UID.
    Request(String),
    /// Another author, as an attempt found; the name is tried again from this time on.
    Other(Duration),
}

impl RoleNames {
    /// Records that the request with this UID has a Role of this name.
    pub fn note(&mut self, uid: &str, role: &str) {
        if let Some(number) = grant_role_number(role) {
            self.0.insert(number, Holder::Request(uid.to_owned()));
        }
    }

    /// Returns a name for the Role of the request with this UID; the origin of `elapsed` is arbitrary. The name is the
    /// same as long as the request holds it: a Role that a killed process created is found under the name that is tried
    /// first. `None` if no name is free, and the Role gets a name that is not reserved. Names in `bound` have bindings
    /// of other authors, and `is_over` reports that a request no longer needs its Role.
    pub fn take(
        &mut self,
        uid: &str,
        elapsed: Duration,
        bound: &[String],
        is_over: impl Fn(&str) -> bool,
    ) -> Option<String> {
        for number in bound.iter().filter_map(|name| grant_role_number(name)) {
            self.0.insert(number, Holder::Other(elapsed + PASSED_OVER));
        }
        self.0.retain(|_, holder| match holder {
            Holder::Request(holder) => holder == uid || !is_over(holder),
            Holder::Other(again) => elapsed < *again,
        });
        let is_others = |holder: &&Holder| matches!(holder, Holder::Other(_));
        if self.0.values().filter(is_others).count() >= MOST_TAKEN {
            return None;
        }
        let own = |(number, holder): (&u16, &Holder)| {
            matches!(holder, Holder::Request(holder) if holder == uid).then_some(*number)
        };
        let number = self.0.iter().find_map(own).or_else(|| {
            let first = first(uid);
            let mut numbers = (first..GRANT_ROLES).chain(0..first);
            numbers.find(|number| !self.0.contains_key(number))
        })?;
        self.0.insert(number, Holder::Request(uid.to_owned()));
        Some(grant_role(number))
    }

    /// Records that a name that was handed out belongs to another author. Returns whether it is a reserved name.
    pub fn is_taken(&mut self, role: &str, elapsed: Duration) -> bool {
        let Some(number) = grant_role_number(role) else {
            return false;
        };
        self.0.insert(number, Holder::Other(elapsed + PASSED_OVER));
        true
    }

    /// Checks whether no name is known to be in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the start of the search: different for each request, and constant for one request.
fn first(uid: &str) -> u16 {
    let digest = Sha256::digest(uid);
    u16::from_be_bytes([digest[0], digest[1]]) % GRANT_ROLES
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn elapsed(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn never(_: &str) -> bool {
        false
    }

    #[test]
    fn each_request_has_one_name_and_keeps_it_also_in_a_process_that_knows_nothing() {
        let mut names = RoleNames::default();
        let mut given = BTreeSet::new();
        for number in 0..GRANT_ROLES {
            let uid = format!("uid-{number}");
            let name = names.take(&uid, elapsed(0), &[], never).unwrap();
            assert_eq!(
                names.take(&uid, elapsed(1), &[], never).as_ref(),
                Some(&name)
            );
            assert!(grant_role_number(&name).unwrap() < GRANT_ROLES);
            assert!(given.insert(name));
        }
        assert_eq!(names.take("one more", elapsed(2), &[], never), None);
        // As soon as one of the requests is over, a name is free again.
        let name = names.take("one more", elapsed(2), &[], |uid| uid == "uid-7");
        assert!(name.is_some());
        let mut anew = [RoleNames::default(), RoleNames::default()];
        let [one, other] = anew.each_mut();
        assert_eq!(
            one.take("uid-1", elapsed(0), &[], never),
            other.take("uid-1", elapsed(9), &[], never)
        );
    }

    #[test]
    fn foreign_role_names_are_skipped_for_one_minute() {
        let mut names = RoleNames::default();
        let first = names.take("a", elapsed(0), &[], never).unwrap();
        assert!(names.is_taken(&first, elapsed(0)));
        let second = names.take("a", elapsed(0), &[], never).unwrap();
        assert_ne!(first, second);
        // A binding of another author refers to the second name.
        let third = names.take("a", elapsed(0), std::slice::from_ref(&second), never);
        let third = third.unwrap();
        assert!(third != first && third != second);
        assert!(names.is_taken(&third, elapsed(1)));
        assert_eq!(names.take("a", elapsed(1), &[], never), None);
        assert_eq!(names.take("b", elapsed(59), &[], never), None);
        assert_eq!(names.take("a", elapsed(61), &[], never), Some(first));
        assert!(!names.is_taken("debug-0a1b2c3d", elapsed(61)));
    }

    #[test]
    fn known_role_name_is_not_taken_by_another_request() {
        let mut names = RoleNames::default();
        let wanted = RoleNames::default()
            .take("a", elapsed(0), &[], never)
            .unwrap();
        names.note("b", &wanted);
        names.note("c", "debug-0a1b2c3d");
        let got = names.take("a", elapsed(0), &[], never).unwrap();
        assert_ne!(got, wanted);
        assert_eq!(names.take("b", elapsed(0), &[], never), Some(wanted));
        // Only `a` still holds a name.
        assert_eq!(
            names.take("d", elapsed(0), &[], |_| true),
            RoleNames::default().take("d", elapsed(0), &[], never)
        );
        assert!(!names.is_empty());
    }

    #[test]
    fn only_three_digits_make_a_reserved_name() {
        for (name, number) in [
            ("oz-grant-000", Some(0)),
            ("oz-grant-255", Some(255)),
            ("oz-grant-999", Some(999)),
            ("oz-grant-1", None),
            ("oz-grant-0000", None),
            ("oz-grant-+01", None),
            ("my-oz-grant-001", None),
            ("oz-grant-", None),
        ] {
            assert_eq!(grant_role_number(name), number, "{name}");
        }
        assert_eq!(grant_role(7), "oz-grant-007");
    }
}
