//! The current grants by their requests: from the sealed Roles that carry them, and from the requests that say whether
//! they were ended.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::Role;
use kube::Resource;
use kube::core::PartialObjectMeta;
use oz_api::{AccessLock, ExecAccessRequest, PodAccessRequest, Requester, labels};
use oz_core::access::grant::Grant;
use oz_core::access::lock::{Access, Locked, Locks};
use oz_core::access::request::Request;
use oz_core::access::seal::Keys;
use oz_core::connect::{GrantState, Refusal, binds};
use oz_runtime::{Feeds, Keep, Kind, Selection, Store, Subscription};
use tokio::sync::watch;

use crate::answer::Refused;

type RoleMeta = PartialObjectMeta<Role>;

/// The known grants.
pub(crate) struct Grants {
    keys: Keys,
    roles: Store<RoleMeta>,
    exec: Store<ExecAccessRequest>,
    pod: Store<PodAccessRequest>,
    locks: Store<AccessLock>,
    changed: watch::Sender<u64>,
    _subscriptions: [Subscription; 4],
}

impl Grants {
    /// Watches the objects that decisions about grants need.
    pub(crate) fn new(feeds: &Feeds, keys: Keys) -> Arc<Self> {
        let ours = Selection::default()
            .labels(&format!("{}={}", labels::MANAGED_BY, labels::OZ))
            .metadata_only();
        let keep = Keep {
            group_of: Some(|role: &RoleMeta| labels::owner_uid(&role.metadata)),
            ..Keep::default()
        };
        let roles: Store<RoleMeta> = feeds.store_of(&Kind::from_type::<Role>(), ours, &keep);
        let (exec, pod, locks) = (feeds.store(), feeds.store(), feeds.store());
        let (changed, _) = watch::channel(0);
        let subscriptions = [
            notes(&roles, &changed),
            notes(&exec, &changed),
            notes(&pod, &changed),
            notes(&locks, &changed),
        ];
        Arc::new(Self {
            keys,
            roles,
            exec,
            pod,
            locks,
            changed,
            _subscriptions: subscriptions,
        })
    }

    /// Returns the keys that seal and open seals.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Reports every change of an object on which a decision depends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reports that the keys have changed: seals that did not open before may open now.
    pub(crate) fn keys_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the grant of the request with this name that belongs to this user; if the user has none, another grant
    /// of the name.
    ///
    /// # Errors
    /// As long as some of the existing objects are not yet known.
    pub(crate) fn find(
        &self,
        namespace: &str,
        request: &str,
        user: &Requester,
    ) -> Result<Option<GrantState>, Refused> {
        let ready = self.roles.is_ready() && self.exec.is_ready() && self.pod.is_ready();
        if !ready || !self.locks.is_ready() {
            let message = "oz-gate has not listed every grant yet; try again in a few seconds";
            return Err(Refused::unavailable("NotReady", message));
        }
        let exec = self.exec.get(Some(namespace), request);
        let pod = self.pod.get(Some(namespace), request);
        let exec = exec.and_then(|one| one.metadata.uid.clone());
        let pod = pod.and_then(|one| one.metadata.uid.clone());
        let standings = exec
            .into_iter()
            .chain(pod)
            .filter_map(|uid| self.find_by_uid(&uid));
        let mut standings: Vec<GrantState> = standings.collect();
        let theirs = |standing: &GrantState| {
            standing.grant.sessions.gate.is_some() && binds(&standing.grant.subjects, user)
        };
        let at = standings.iter().position(theirs).unwrap_or(0);
        Ok((at < standings.len()).then(|| standings.swap_remove(at)))
    }

    /// Returns the grant of the request with this UID, from its Role.
    fn find_by_uid(&self, uid: &str) -> Option<GrantState> {
        let roles = self.roles.group(uid);
        let grant = roles.iter().find_map(|role| {
            let metadata = &role.metadata;
            let grant = Grant::open(&self.keys, metadata, uid)?;
            let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref()?);
            grant.is_at("Role", namespace, name).then_some(grant)
        })?;
        let ended = self.is_ended(&grant);
        Some(GrantState {
            grant: Arc::new(grant),
            ended,
        })
    }

    fn is_ended(&self, grant: &Grant) -> bool {
        fn over<R: oz_core::kinds::AccessRequest>(request: Option<Arc<R>>) -> bool {
            request.is_none_or(|one| Request::from(&*one).is_ending())
        }
        let uid = &grant.request.uid;
        if grant.own_pod.is_some() {
            over(self.pod.by_uid(uid))
        } else {
            over(self.exec.by_uid(uid))
        }
    }

    /// Returns the lock that blocks the use of a grant by a user, if one does.
    pub(crate) fn lock(&self, grant: &Grant, user: &Requester, now: Timestamp) -> Option<Locked> {
        let locks = Locks {
            all: self.locks.objects(),
            unreadable: self.locks.undecodable(),
        };
        let granted = locks.against(&Access::granted(grant), now);
        granted.or_else(|| locks.against(&Access::used(grant, user), now))
    }

    /// Checks whether a session that was opened by this grant may continue.
    pub(crate) fn lasts(
        &self,
        opened: &Grant,
        user: &Requester,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let ended = |ended| GrantState {
            grant: Arc::new(opened.clone()),
            ended,
        };
        let (standing, lock) = match self.find_by_uid(&opened.request.uid) {
            // The grant continues in another pod; this session is not in that pod.
            Some(standing) if standing.grant.pod != opened.pod => {
                return oz_gating::is_granted_pod(opened, None);
            }
            Some(standing) => {
                let lock = self.lock(&standing.grant, user, now);
                (standing, lock)
            }
            None => (ended(true), None),
        };
        oz_gating::lasts(now, &standing, lock.as_ref())
    }
}

/// Counts the changes of a store.
fn notes<K: Resource + Send + Sync + 'static>(
    store: &Store<K>,
    changed: &watch::Sender<u64>,
) -> Subscription {
    let changed = changed.clone();
    store.subscribe(move |_| changed.send_modify(|count| *count += 1))
}
