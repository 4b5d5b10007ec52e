//! The existing grants by bound subject, read from the Roles that carry them, sealed. Each grant is
//! opened once, when the watch shows its Role, so that a decision only looks up and compares.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, PartialObjectMeta};
use oz_admission::UserInfo;
use oz_api::{ExecAccessRequest, Phase, PodAccessRequest, RequestStatus, Requester, labels, names};
use oz_core::access::approval::is_same_person;
use oz_core::access::extra::SESSION_TOKEN;
use oz_core::access::grant::Grant;
use oz_core::access::policy::situation::Active;
use oz_core::access::request::Request;
use oz_core::access::seal::Keys;
use oz_core::connect::{Attempt, GrantState, Past};
use oz_core::gate::GateAccount;
use oz_core::gate::ticket::Ticket;
use oz_runtime::{Gate, Guarded, Retried, Runtime, Selection, Store, StoreEvent};
use parking_lot::RwLock;
use tokio::sync::Notify;

/// The grants, and the requests that show whether they were ended.
#[derive(Clone)]
pub(crate) struct Grants {
    keys: Keys,
    index: Arc<RwLock<Index>>,
    /// The notification that the keys that open seals have changed.
    reopen: Arc<Notify>,
    exec: Store<ExecAccessRequest>,
    pod: Store<PodAccessRequest>,
}

#[derive(Default)]
struct Index {
    by_role: HashMap<String, Arc<Grant>>,
    /// The UIDs of Roles by namespace and bound subject.
    by_subject: HashMap<(String, String), BTreeSet<String>>,
    /// The Roles that the current list has shown so far.
    listing: Option<BTreeSet<String>>,
}

impl Index {
    fn put(&mut self, role: &str, grant: Arc<Grant>) {
        self.remove(role);
        for subject in whom(&grant) {
            let key = (grant.request.namespace.clone(), bound(&subject));
            self.by_subject
                .entry(key)
                .or_default()
                .insert(role.to_owned());
        }
        self.by_role.insert(role.to_owned(), grant);
    }

    fn remove(&mut self, role: &str) {
        let Some(grant) = self.by_role.remove(role) else {
            return;
        };
        for subject in whom(&grant) {
            let key = (grant.request.namespace.clone(), bound(&subject));
            if let Some(roles) = self.by_subject.get_mut(&key) {
                roles.remove(role);
                if roles.is_empty() {
                    self.by_subject.remove(&key);
                }
            }
        }
    }
}

/// Returns the subjects of a grant, and the gate that is bound for them.
fn whom(grant: &Grant) -> Vec<Subject> {
    let mut all = grant.subjects.clone();
    all.extend(grant.sessions.gate.iter().map(GateAccount::subject));
    all
}

/// Returns the identity of a subject as one text.
fn bound(subject: &Subject) -> String {
    match (subject.kind.as_str(), &subject.namespace) {
        ("ServiceAccount", Some(namespace)) => {
            format!("User:{}", names::service_account(namespace, &subject.name))
        }
        (kind, _) => format!("{kind}:{}", subject.name),
    }
}

impl Grants {
    pub(crate) fn new(
        keys: Keys,
        exec: Store<ExecAccessRequest>,
        pod: Store<PodAccessRequest>,
    ) -> Self {
        Self {
            keys,
            index: Arc::default(),
            reopen: Arc::default(),
            exec,
            pod,
        }
    }

    /// Returns the grants in the namespace that bind this user.
    pub(crate) fn list_for_user(&self, namespace: &str, user: &Requester) -> Vec<GrantState> {
        let groups = user.groups.iter().map(|group| format!("Group:{group}"));
        let whom = std::iter::once(format!("User:{}", user.user)).chain(groups);
        let index = self.index.read();
        let roles: BTreeSet<&String> = whom
            .filter_map(|whom| index.by_subject.get(&(namespace.to_owned(), whom)))
            .flatten()
            .collect();
        let grants: Vec<Arc<Grant>> = roles
            .into_iter()
            .filter_map(|role| index.by_role.get(role).cloned())
            .collect();
        drop(index);
        let standing = |grant: Arc<Grant>| GrantState {
            ended: self.is_ended(&grant),
            grant,
        };
        grants.into_iter().map(standing).collect()
    }

    /// Returns the live grants of this requester in all namespaces.
    pub(crate) fn held_by(&self, requester: &Requester, now: Timestamp) -> Vec<Active> {
        let index = self.index.read();
        let theirs: Vec<Arc<Grant>> = index
            .by_role
            .values()
            .filter(|grant| is_same_person(&grant.requester, requester))
            .filter(|grant| !grant.window.is_over(now))
            .cloned()
            .collect();
        drop(index);
        let live = theirs.iter().filter(|grant| !self.is_ended(grant));
        live.map(|grant| Active::from(&**grant)).collect()
    }

    /// Checks whether the request of the grant was deleted, or has ended by its status.
    fn is_ended(&self, grant: &Grant) -> bool {
        let uid = &grant.request.uid;
        let over = |request: &Request<'_>| request.is_ending();
        if grant.own_pod.is_some() {
            self.pod
                .by_uid(uid)
                .is_none_or(|one| over(&Request::from(&*one)))
        } else {
            self.exec
                .by_uid(uid)
                .is_none_or(|one| over(&Request::from(&*one)))
        }
    }

    /// Checks whether the watch has shown the request with this UID, or its deletion.
    pub(crate) fn knows_request(&self, uid: &str) -> bool {
        let exec = || self.exec.by_uid(uid).is_some() || self.exec.is_gone(uid);
        exec() || self.pod.by_uid(uid).is_some() || self.pod.is_gone(uid)
    }

    /// Calls `told` for each request of a namespace, of both kinds.
    pub(crate) fn each_request(
        &self,
        namespace: &str,
        mut told: impl FnMut(&ObjectMeta, Option<&RequestStatus>),
    ) {
        let here = |metadata: &ObjectMeta| metadata.namespace.as_deref() == Some(namespace);
        for request in self.exec.select(|request| here(&request.metadata)) {
            told(&request.metadata, request.status.as_ref());
        }
        for request in self.pod.select(|request| here(&request.metadata)) {
            told(&request.metadata, request.status.as_ref());
        }
    }

    /// Returns the latest ended request of this user for this pod.
    pub(super) fn past(&self, attempt: &Attempt<'_>) -> Option<Past> {
        let ended = |request: &ExecAccessRequest| {
            let status = request.status.as_ref();
            status.is_some_and(|status| {
                matches!(status.phase, Phase::Expired | Phase::Revoked)
                    && status.requester.as_ref() == Some(&attempt.user.user)
                    && status.pod_name.as_deref() == Some(attempt.pod)
            }) && request.metadata.namespace.as_deref() == Some(attempt.namespace)
        };
        let until = |request: &Arc<ExecAccessRequest>| -> Option<Timestamp> {
            request.status.as_ref()?.expires_at
        };
        let found = self.exec.select(ended).into_iter().max_by_key(until)?;
        Some(Past {
            request: found.metadata.name.clone()?,
            template: found.spec.template_name.clone(),
            phase: found.status.as_ref().map(|status| status.phase)?,
        })
    }

    /// Returns the session token with which the gate names the user of a session. It is valid only
    /// if the authenticated user is the gate that is bound for the grant: other users may have read
    /// a token.
    pub(super) fn ticket(
        &self,
        namespace: &str,
        (user, said): (&Requester, &UserInfo),
        now: Timestamp,
    ) -> Option<Ticket> {
        let [said] = said.extra.get(SESSION_TOKEN)?.as_slice() else {
            return None;
        };
        let ticket = Ticket::open(&self.keys, said, now)?;
        let standings = self.list_for_user(namespace, user);
        let mut grants = standings.iter().map(|standing| &standing.grant);
        grants
            .any(|grant| {
                let gate = grant.sessions.gate.as_ref();
                grant.request.uid == ticket.request && gate.is_some_and(|gate| gate.is(user))
            })
            .then_some(ticket)
    }

    /// Opens each grant again with the changed keys.
    pub(crate) fn open_again(&self) {
        self.reopen.notify_one();
    }

    /// Applies an event of the watch of Roles.
    fn take(&self, event: StoreEvent<Guarded<PartialObjectMeta<Role>>>) {
        let mut index = self.index.write();
        match event {
            StoreEvent::Init => index.listing = Some(BTreeSet::new()),
            StoreEvent::InitApply(role) | StoreEvent::Apply(role) => {
                let metadata = role.metadata();
                let Some(uid) = metadata.uid.clone() else {
                    return;
                };
                match self.opened(metadata) {
                    Some(grant) => index.put(&uid, Arc::new(grant)),
                    None => index.remove(&uid),
                }
                if let Some(listing) = &mut index.listing {
                    listing.insert(uid);
                }
            }
            StoreEvent::InitDone => {
                let listing = index.listing.take();
                let is_listed = |role: &String| listing.iter().any(|all| all.contains(role));
                let gone = index.by_role.keys().filter(|role| !is_listed(role));
                for role in gone.cloned().collect::<Vec<_>>() {
                    index.remove(&role);
                }
            }
            StoreEvent::Delete(role) => {
                if let Some(uid) = &role.metadata().uid {
                    index.remove(uid);
                }
            }
        }
    }

    /// Returns the decision that a Role carries, if it is sealed for the place of the Role.
    pub(super) fn opened(&self, role: &ObjectMeta) -> Option<Grant> {
        let owner = labels::owner_uid(role)?;
        let grant = Grant::open(&self.keys, role, owner)?;
        let (namespace, name) = (role.namespace.as_deref(), role.name.as_deref()?);
        grant.is_at("Role", namespace, name).then_some(grant)
    }

    #[cfg(test)]
    pub(crate) fn insert(&self, grant: Grant) {
        self.insert_as(&grant.request.uid.clone(), grant);
    }

    #[cfg(test)]
    pub(crate) fn insert_as(&self, role: &str, grant: Grant) {
        let mut index = self.index.write();
        index.put(role, Arc::new(grant));
    }

    #[cfg(test)]
    pub(crate) async fn wait_until_ready(&self) {
        self.exec.ready().await;
    }
}

/// Watches the grants and their requests.
pub(crate) fn watch(runtime: &mut Runtime, keys: &Keys) -> Grants {
    let grants = Grants::new(
        keys.clone(),
        runtime.feeds().store(),
        runtime.feeds().store(),
    );
    let ours = Selection::default()
        .labels(&format!("{}={}", labels::MANAGED_BY, labels::OZ))
        .metadata_only();
    let resource = ApiResource::erase::<Role>(&());
    let (watch, listed) = runtime.feeds().watch("grant list", &resource, None, ours);
    let roles = roles(watch, grants.clone(), listed);
    runtime.part("the watch of grants", |stop| async move {
        stop.run_until_cancelled(roles).await;
    });
    grants
}

async fn roles(mut watch: Retried<PartialObjectMeta<Role>>, grants: Grants, listed: Gate) {
    let mut listing = true;
    loop {
        let event = tokio::select! {
            event = watch.next(|_| {}) => event,
            // The index stays complete until the list is complete.
            () = grants.reopen.notified(), if !listing => {
                watch.begin_again();
                continue;
            }
        };
        listing = matches!(event, StoreEvent::Init | StoreEvent::InitApply(_));
        let done = matches!(event, StoreEvent::InitDone);
        grants.take(event);
        if done {
            listed.open();
        }
    }
}
