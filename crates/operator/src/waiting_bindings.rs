//! The transient bindings of a user that wait for their windows, of all kinds, as watches have shown them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use oz_core::access::seal::Keys;
use oz_core::transient::{Kind, WaitingWindow};
use oz_runtime::{Feeds, Store};
use tokio::time::timeout;

use crate::kept::{self, By};

/// The timeout for the first lists of all kinds, together.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The waiting bindings, see the module.
#[derive(Clone, Default)]
pub(crate) struct WaitingBindings(Vec<Arc<dyn FindWaiting>>);

/// The bindings of one kind.
trait FindWaiting: Send + Sync {
    /// Waits until the bindings have been listed.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// Returns the bindings of a user that wait at `now`.
    fn find(&self, keys: &Keys, user: &str, now: Timestamp) -> Vec<WaitingWindow>;
}

impl<K: Kind> FindWaiting for Store<K> {
    fn ready(&self) -> BoxFuture<'_, ()> {
        Self::ready(self).boxed()
    }

    fn find(&self, keys: &Keys, user: &str, now: Timestamp) -> Vec<WaitingWindow> {
        let is_theirs = |binding: &K| {
            let requester = binding.view().requester(keys);
            requester.is_ok_and(|requester| requester.user == user)
        };
        let theirs = self.marked(By::Waits(user).mark(), is_theirs);
        let windows = theirs
            .iter()
            .map(|binding| binding.stored().ok()?.waiting(now));
        windows.flatten().collect()
    }
}

impl WaitingBindings {
    /// Adds the bindings of a kind to the count.
    pub(crate) fn add<K: Kind>(&mut self, feeds: &Feeds) {
        self.0.push(Arc::new(kept::bindings::<K>(feeds)));
    }

    /// Returns the bindings of a user that wait at `now`.
    pub(crate) async fn find(&self, keys: &Keys, user: &str, now: Timestamp) -> Vec<WaitingWindow> {
        // A kind that cannot be listed does not delay the others: bindings that are not visible yet
        // are counted once they are.
        let ready = join_all(self.0.iter().map(|kind| kind.ready()));
        let _ = timeout(READY_TIMEOUT, ready).await;
        let kinds = self.0.iter();
        kinds.flat_map(|kind| kind.find(keys, user, now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{Phase, Requester, TransientClusterRoleBinding, TransientRoleBinding, labels};
    use oz_core::access::seal::Owner;
    use oz_core::access::stamp::Stamp;
    use serde_json::json;

    use super::*;

    const NOON: &str = "2026-01-01T12:00:00Z";

    fn keys() -> Keys {
        Keys::new(Owner::Webhook, &[[7; Keys::BYTES]]).unwrap()
    }

    /// A binding of a user, stamped with a key, that opens at one o'clock.
    fn binding<K: Kind>(name: &str, user: &str, phase: Phase, keys: &Keys) -> K {
        let namespace = (!K::CLUSTER).then_some("shop");
        let mut object: K = serde_json::from_value(json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": NOON},
            "spec": {
                "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User", "name": "mallory"}],
                "validFrom": "2026-01-01T13:00:00Z", "duration": "1h",
            },
            "status": {"phase": phase},
        }))
        .unwrap();
        let stamp = Stamp {
            requester: Requester {
                user: user.to_owned(),
                ..Requester::default()
            },
            kind: object.view().kind.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
            spec_digest: object.view().spec_digest,
            at: NOON.parse().unwrap(),
            ..Stamp::default()
        };
        let annotations = object.meta_mut().annotations.get_or_insert_default();
        annotations.insert(labels::REQUESTER.to_owned(), stamp.seal(keys).unwrap());
        object
    }

    #[tokio::test]
    async fn bindings_of_all_kinds_are_counted_for_who_is_proven_to_have_asked() {
        let forger = Keys::new(Owner::Webhook, &[[8; Keys::BYTES]]).unwrap();
        let (pending, denied) = (Phase::Pending, Phase::Denied);
        let namespaced = [
            binding::<TransientRoleBinding>("a", "alice", pending, &keys()),
            binding("b", "alice", denied, &keys()),
            binding("c", "bob", pending, &keys()),
            // In alice's name, by a user who bypassed the webhook.
            binding("d", "alice", pending, &forger),
        ];
        let cluster = [
            binding::<TransientClusterRoleBinding>("e", "alice", pending, &keys()),
            binding("f", "bob", denied, &keys()),
        ];
        let mut waiting = WaitingBindings::default();
        waiting.0.push(Arc::new(Store::fixed_as(
            namespaced,
            &kept::keep_bindings(),
        )));
        waiting
            .0
            .push(Arc::new(Store::fixed_as(cluster, &kept::keep_bindings())));
        let now: Timestamp = NOON.parse().unwrap();
        for (user, count) in [("alice", 2), ("bob", 1), ("carol", 0)] {
            let found = waiting.find(&keys(), user, now).await;
            assert_eq!(found.len(), count, "{user}: {found:?}");
        }
        let opened: Timestamp = "2026-01-01T13:00:00Z".parse().unwrap();
        assert!(waiting.find(&keys(), "alice", opened).await.is_empty());
    }
}
