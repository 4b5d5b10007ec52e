//! Locks at the edge: those that there are, and what is looked at again when one is made, changed or removed. What a
//! lock is not about costs no pass, and one that it is about waits for no other event.

use std::sync::Arc;

use oz_core::access::lock::{self, Locks};
use oz_core::access::seal::Keys;
use oz_core::api::AccessLock;
use oz_core::api::harness::HarnessRun;
use oz_core::harness::run::is_concerned_by;
use oz_core::kinds::{AccessRequest, AccessTemplate};
use oz_core::transient::Kind;
use oz_runtime::Store;

/// The locks that a watch has shown.
pub(crate) fn locks(store: &Store<AccessLock>) -> Locks {
    Locks {
        all: store.objects(),
        unreadable: store.undecodable(),
    }
}

/// The requests of a kind that a lock concerns.
pub(crate) fn requests<R: AccessRequest>(
    keys: &Keys,
    templates: &Store<R::Template>,
) -> impl Fn(&AccessLock, &Store<R>) -> Vec<Arc<R>> + Send + Sync + 'static {
    let (keys, templates) = (keys.clone(), templates.clone());
    move |lock, requests| {
        requests.select(|request| {
            let view = request.view();
            let template = templates.get(view.metadata.namespace.as_deref(), view.template);
            let config = template.as_deref().map(AccessTemplate::config);
            lock::concerns(lock, &keys, &view, config)
        })
    }
}

/// The transient bindings of a kind that a lock concerns.
pub(crate) fn bindings<K: Kind>(
    keys: &Keys,
) -> impl Fn(&AccessLock, &Store<K>) -> Vec<Arc<K>> + Send + Sync + 'static {
    let keys = keys.clone();
    move |lock, bindings| bindings.select(|binding| binding.view().is_concerned_by(lock, &keys))
}

/// The harness runs that a lock concerns.
pub(crate) fn runs(
    keys: &Keys,
) -> impl Fn(&AccessLock, &Store<HarnessRun>) -> Vec<Arc<HarnessRun>> + Send + Sync + 'static {
    let keys = keys.clone();
    move |lock, runs| runs.select(|run| is_concerned_by(run, lock, &keys))
}
