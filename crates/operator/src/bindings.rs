//! Transient bindings at the edge: the watches and reads for `oz_core::transient`. A binding that
//! waits or is in effect requires no reads; one that is about to be created requires three, and one
//! more if it required approval.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::ObjectMeta;
use oz_api::{AccessLock, AccessRequestApproval, Phase, labels};
use oz_core::access::policy;
use oz_core::access::seal::Keys;
use oz_core::controller::Failure;
use oz_core::transient::{Facts, Kind, Lookup, Question, StoredBinding, Transient, Want, may_bind};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::answers::{about_bindings, approvals, seen};
use crate::emergencies::Emergencies;
use crate::locks;
use crate::roles::{self, may};
use crate::stamps::Stamps;
use crate::tickets::TicketChecks;
use crate::waiting_bindings::WaitingBindings;

pub(crate) struct Bindings<K> {
    /// The keys that open stamps.
    pub(crate) keys: Keys,
    pub(crate) objects: Store<K>,
    pub(crate) locks: Store<AccessLock>,
    pub(crate) approvals: Store<AccessRequestApproval>,
    /// oz's own namespace, which contains the approvals and denials of cluster-scoped objects.
    pub(crate) namespace: Arc<str>,
    pub(crate) stamps: Stamps,
    /// The bindings of all kinds that wait for their windows.
    pub(crate) waiting: WaitingBindings,
    pub(crate) emergencies: Emergencies,
    pub(crate) tickets: TicketChecks,
}

impl<K: Kind> Bindings<K> {
    /// Returns the approvals and denials of a pending binding from a watch, if access policies
    /// require approval.
    fn answers(&self, view: &StoredBinding<'_>) -> Vec<AccessRequestApproval> {
        let candidate = view.candidate(&self.namespace);
        if candidate.phase != Phase::Pending || !policy::requires_approval(candidate.metadata) {
            return Vec::new();
        }
        seen(&self.approvals, &candidate)
    }
}

impl<K: Kind> Observe<Transient<K>> for Bindings<K> {
    fn watches(&self) -> Watches<K> {
        let watches = Watches::new(&self.objects)
            .marked(K::MARK)
            .related(&self.approvals, about_bindings(&self.namespace))
            .signalled(self.tickets.signal())
            .ended_by(
                &self.locks,
                locks::bindings(&self.keys, &self.approvals, &self.namespace),
            );
        if K::CLUSTER {
            watches.child::<ClusterRoleBinding>()
        } else {
            watches.child::<RoleBinding>()
        }
    }

    fn facts(&self, object: &K) -> Facts {
        let view = object.stored().ok();
        let view = view.as_ref();
        Facts {
            approvals: view.map_or_else(Vec::new, |view| self.answers(view)),
            locks: locks::locks(&self.locks),
            tickets: self
                .tickets
                .about_ticket(view.and_then(|view| view.ask().ticket)),
            ..Facts::default()
        }
    }

    async fn answer(&self, cx: &Cx, object: &K, question: Question, facts: &mut Facts) {
        match question {
            Question::Waiting(requester) => {
                let waiting = self.waiting.find(&self.keys, &requester.user, cx.now());
                facts.waiting = Some(waiting.await);
            }
            Question::Emergencies(limit) => {
                let Some(uid) = object.meta().uid.as_deref() else {
                    return;
                };
                facts.unreviewed = Some(self.emergencies.take(cx.now(), uid, &limit));
            }
            Question::SameStamp => {
                facts.same_stamp = Some(self.stamps.same(cx.now(), &self.objects, object));
            }
            Question::Approvals => {
                facts.confirmed = Some(match object.stored() {
                    Ok(view) => approvals(cx, &view.candidate(&self.namespace)).await,
                    Err(error) => Err(error.into()),
                });
            }
            Question::Lookup(want) => {
                let namespace = want.namespace.as_deref();
                let review = may_bind(&want.requester, namespace, &want.role);
                let rules = roles::rules(cx, namespace, &want.role);
                let Some(uid) = object.meta().uid.as_deref() else {
                    return;
                };
                let (role, may_bind, taken) =
                    tokio::join!(rules, may(cx, &review), taken(cx, &want, uid));
                facts.lookup = Some(Lookup {
                    role,
                    may_bind,
                    taken,
                });
            }
        }
    }
}

/// Checks whether an object of another owner has the name. An object of this owner that no watch
/// has shown yet is found when it is created again.
async fn taken(cx: &Cx, want: &Want, uid: &str) -> Result<bool, Failure> {
    let foreign = |metadata: ObjectMeta| labels::owner_uid(&metadata) != Some(uid);
    let there = match &want.namespace {
        Some(namespace) => {
            let binding = cx.get::<RoleBinding>(Some(namespace), &want.name).await?;
            binding.map(|binding| binding.metadata)
        }
        None => {
            let binding = cx.get::<ClusterRoleBinding>(None, &want.name).await?;
            binding.map(|binding| binding.metadata)
        }
    };
    Ok(there.is_some_and(foreign))
}
