//! Locks at the edge: the existing locks, and the objects to reconcile when one is created, changed
//! or removed. A lock causes no pass for an unaffected object, and an affected one waits for no
//! other event.

use std::sync::Arc;

use oz_api::harness::HarnessRun;
use oz_api::{AccessLock, AccessRequestApproval, Phase};
use oz_core::access::approval::is_concerned_by as is_by_locked;
use oz_core::access::lock::{self, Locks};
use oz_core::access::seal::Keys;
use oz_core::kinds::{AccessRequest, AccessTemplate};
use oz_core::transient::Kind;
use oz_runs::run::is_concerned_by;
use oz_runtime::Store;

use crate::answers::{about, about_bindings, about_runs};

/// Returns the locks that a watch has shown.
pub(crate) fn locks(store: &Store<AccessLock>) -> Locks {
    Locks {
        all: store.objects(),
        unreadable: store.undecodable(),
    }
}

/// Returns the requests of a kind that a lock affects: those of locked requesters, and those with
/// an approval or denial by a locked user.
pub(crate) fn requests<R: AccessRequest>(
    keys: &Keys,
    templates: &Store<R::Template>,
    approvals: &Store<AccessRequestApproval>,
) -> impl Fn(&AccessLock, &Store<R>) -> Vec<Arc<R>> + Send + Sync + 'static {
    let (keys, templates, approvals) = (keys.clone(), templates.clone(), approvals.clone());
    move |lock, requests| {
        let mut concerned = requests.select(|request| {
            let view = request.view();
            let template = templates.get(view.metadata.namespace.as_deref(), view.template);
            let config = template.as_deref().map(AccessTemplate::config);
            lock::concerns(lock, &keys, &view, config)
        });
        for answer in approvals.select(|answer| is_by_locked(answer, lock, &keys)) {
            let waiting = about(&answer, requests).into_iter();
            concerned.extend(waiting.filter(|request| request.view().phase() == Phase::Pending));
        }
        concerned
    }
}

/// Returns the transient bindings of a kind that a lock affects, as for requests. Approvals and
/// denials of cluster-scoped bindings are in `own_namespace`.
pub(crate) fn bindings<K: Kind>(
    keys: &Keys,
    approvals: &Store<AccessRequestApproval>,
    own_namespace: &Arc<str>,
) -> impl Fn(&AccessLock, &Store<K>) -> Vec<Arc<K>> + Send + Sync + 'static {
    let (keys, approvals) = (keys.clone(), approvals.clone());
    let about = about_bindings(own_namespace);
    move |lock, bindings| {
        let mut concerned = bindings.select(|binding| binding.view().is_concerned_by(lock, &keys));
        for answer in approvals.select(|answer| is_by_locked(answer, lock, &keys)) {
            let waiting = about(&answer, bindings).into_iter();
            concerned.extend(waiting.filter(|binding| {
                let status = binding.view().status;
                status.is_none_or(|status| status.phase == Phase::Pending)
            }));
        }
        concerned
    }
}

/// Returns the harness runs that a lock affects, as for requests.
pub(crate) fn runs(
    keys: &Keys,
    approvals: &Store<AccessRequestApproval>,
) -> impl Fn(&AccessLock, &Store<HarnessRun>) -> Vec<Arc<HarnessRun>> + Send + Sync + 'static {
    let (keys, approvals) = (keys.clone(), approvals.clone());
    move |lock, runs| {
        let mut concerned = runs.select(|run| is_concerned_by(run, lock, &keys));
        for answer in approvals.select(|answer| is_by_locked(answer, lock, &keys)) {
            concerned.extend(about_runs(&answer, runs));
        }
        concerned
    }
}
