//! The limits on concurrent scripts: on one node, in one namespace, in total. A script that waits
//! for one of these limits takes no place of the others, so that a node that does not respond
//! blocks no place of a namespace with waiting scripts, nor a namespace one of a node.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The maximum number in the pods of one namespace. It is lower than that of a node: unresponsive
/// pods of one namespace leave room for those of others on their node.
pub(crate) const IN_NAMESPACE: usize = 16;
/// The maximum number in the pods of one node.
pub(crate) const ON_NODE: usize = 32;
/// The maximum total number. Each script uses a connection.
pub(crate) const ALTOGETHER: usize = 256;

/// The namespace and the node of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptLocation {
    pub(crate) namespace: String,
    pub(crate) node: String,
}

/// The limiter of concurrent scripts. Cheap to clone; clones share their counts.
#[derive(Clone, Default)]
pub(crate) struct Limits(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    namespaces: HashMap<String, usize>,
    nodes: HashMap<String, usize>,
    all: usize,
    /// The waiting scripts, in the order of their arrival.
    waiting: VecDeque<(ScriptLocation, oneshot::Sender<Permit>)>,
}

/// A permit for one script; dropping it allows another one.
pub(crate) struct Permit {
    limits: Limits,
    location: ScriptLocation,
}

impl Limits {
    /// Returns a permit for a script at once, if there is room.
    pub(crate) fn try_enter(&self, location: &ScriptLocation) -> Option<Permit> {
        let entered = self.state().enter(location);
        entered.then(|| self.permit(location.clone()))
    }

    /// Waits until there is room.
    pub(crate) async fn enter(&self, location: ScriptLocation) -> Permit {
        let receiver = {
            let mut state = self.state();
            if state.enter(&location) {
                drop(state);
                return self.permit(location);
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back((location.clone(), sender));
            receiver
        };
        match receiver.await {
            Ok(permit) => permit,
            // The sender is dropped only with these limits, which live as long as this call.
            Err(_) => self.permit(location),
        }
    }

    fn permit(&self, location: ScriptLocation) -> Permit {
        Permit {
            limits: self.clone(),
            location,
        }
    }

    fn leave(&self, location: &ScriptLocation) {
        let mut admitted = Vec::new();
        {
            let mut state = self.state();
            state.leave(location);
            for (location, sender) in std::mem::take(&mut state.waiting) {
                if sender.is_closed() {
                    continue;
                }
                if state.enter(&location) {
                    admitted.push((location, sender));
                } else {
                    state.waiting.push_back((location, sender));
                }
            }
        }
        for (location, sender) in admitted {
            // Without a receiver, the permit is dropped, which leaves and admits the next script.
            let _ = sender.send(self.permit(location));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.leave(&self.location);
    }
}

impl State {
    fn enter(&mut self, location: &ScriptLocation) -> bool {
        let in_namespace = self.namespaces.get(&location.namespace).copied();
        let on_node = self.nodes.get(&location.node).copied();
        let room = self.all < ALTOGETHER
            && in_namespace.is_none_or(|scripts| scripts < IN_NAMESPACE)
            && on_node.is_none_or(|scripts| scripts < ON_NODE);
        if room {
            self.all += 1;
            *self
                .namespaces
                .entry(location.namespace.clone())
                .or_default() += 1;
            *self.nodes.entry(location.node.clone()).or_default() += 1;
        }
        room
    }

    fn leave(&mut self, location: &ScriptLocation) {
        self.all = self.all.saturating_sub(1);
        one_less(&mut self.namespaces, &location.namespace);
        one_less(&mut self.nodes, &location.node);
    }
}

/// Decrements a count, and removes it at zero.
fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn location(namespace: &str, node: &str) -> ScriptLocation {
        ScriptLocation {
            namespace: namespace.into(),
            node: node.into(),
        }
    }

    fn fill(limits: &Limits, locations: impl IntoIterator<Item = ScriptLocation>) -> Vec<Permit> {
        let permits = locations
            .into_iter()
            .map_while(|location| limits.try_enter(&location));
        permits.collect()
    }

    #[tokio::test]
    async fn a_full_node_keeps_only_its_own_waiting() {
        let limits = Limits::default();
        let many = (0..ON_NODE * 2).map(|number| location(&format!("team-{number}"), "slow"));
        let mut held = fill(&limits, many);
        assert_eq!(held.len(), ON_NODE);
        let mut waits = Box::pin(limits.enter(location("shop", "slow")));
        assert!((&mut waits).now_or_never().is_none());
        // The waiting script holds no place of its namespace.
        let others = fill(
            &limits,
            std::iter::repeat_n(location("shop", "quick"), IN_NAMESPACE * 2),
        );
        assert_eq!(others.len(), IN_NAMESPACE);
        drop(others);
        held.pop();
        assert!(waits.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_full_namespace_leaves_room_on_its_nodes() {
        let limits = Limits::default();
        let held = fill(
            &limits,
            std::iter::repeat_n(location("shop", "one"), ON_NODE),
        );
        assert_eq!(held.len(), IN_NAMESPACE);
        assert!(limits.try_enter(&location("shop", "two")).is_none());
        assert!(limits.try_enter(&location("bank", "one")).is_some());
    }

    #[tokio::test]
    async fn session_slots_are_given_in_order_and_cancelled_waiters_skipped() {
        let limits = Limits::default();
        let locations = (0..ALTOGETHER * 2).map(|n| location(&format!("n{n}"), &format!("m{n}")));
        let mut held = fill(&limits, locations);
        assert_eq!(held.len(), ALTOGETHER);
        let mut waiting: Vec<_> = (0..3)
            .map(|_| Box::pin(limits.enter(location("shop", "one"))))
            .collect();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        drop(waiting.remove(0));
        held.pop();
        let first = (&mut waiting[0]).now_or_never();
        assert!(first.is_some() && (&mut waiting[1]).now_or_never().is_none());
        drop((first, waiting, held));
        let state = limits.state();
        assert_eq!((state.all, state.waiting.len()), (0, 0));
        assert!(state.namespaces.is_empty() && state.nodes.is_empty());
    }
}
