//! Locks: creating, removing and listing them.

use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use oz_api::{AccessLock, AccessLockSpec};
use oz_core::access::lock::Locks;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The next step in a failure of a user without permission.
const WHO_MAY: &str =
    "have a user delete it who has the ClusterRole oz-lock-access, and is not locked by it";

fn api(cluster: &Cluster) -> Api<AccessLock> {
    Api::all(cluster.client.clone())
}

fn with_advice(failure: Failure) -> Failure {
    match failure.is_forbidden() {
        true => failure.next(WHO_MAY),
        false => failure,
    }
}

/// Creates a lock with a name that begins with `prefix`.
pub async fn make(cluster: &Cluster, prefix: &str, spec: AccessLockSpec) -> Result<AccessLock> {
    let mut lock = AccessLock::new("", spec);
    lock.metadata.name = None;
    lock.metadata.generate_name = Some(prefix.to_owned());
    let api = api(cluster);
    let parameters = PostParams::default();
    let made = cluster.answer(api.create(&parameters, &lock)).await;
    made.map_err(with_advice)
}

/// Removes a lock, and returns it.
pub async fn remove(cluster: &Cluster, name: &str) -> Result<AccessLock> {
    let api = api(cluster);
    let Some(lock) = cluster.find(&api, name).await? else {
        return Err(Failure::new(format!("no AccessLock {name}"))
            .next("`ozctl locks` lists the existing locks"));
    };
    let parameters = DeleteParams::default();
    let removed = cluster.answer(api.delete(name, &parameters)).await;
    removed.map_err(with_advice)?;
    Ok(lock)
}

/// Lists all locks, also those that have expired.
pub async fn list(cluster: &Cluster) -> Result<Vec<AccessLock>> {
    let api = api(cluster);
    let parameters = ListParams::default();
    let found = cluster.answer(api.list(&parameters)).await;
    Ok(found.map_err(with_advice)?.items)
}

/// Returns the locks that the user may list: none without permission.
pub(crate) async fn seen(cluster: &Cluster) -> Locks {
    let all = list(cluster).await.into_iter().flatten();
    Locks {
        all: all.map(Arc::new).collect(),
        unreadable: 0,
    }
}

/// Returns the prefix for the name of a lock on this: characters that the API accepts, up to a maximum.
#[must_use]
pub fn prefix(what: &str, name: &str) -> String {
    let plain = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(40).collect();
    let name = name.trim_matches('-');
    match name {
        "" => format!("{what}-"),
        name => format!("{what}-{name}-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_name_shows_target_in_valid_characters() {
        for (name, expected) in [
            ("alice", "user-alice-"),
            ("Alice@Example.com", "user-alice-example-com-"),
            (
                "system:serviceaccount:ci:gate",
                "user-system-serviceaccount-ci-gate-",
            ),
            ("\u{430}\u{43b}\u{438}\u{441}\u{430}", "user-"),
            ("", "user-"),
        ] {
            assert_eq!(prefix("user", name), expected);
        }
        assert!(prefix("user", &"a".repeat(1_000)).len() <= 58);
    }
}
