//! The objects that no watch shows. Labels identify children, and a user who may write RBAC objects can remove labels,
//! or create a binding to a Role before the Role exists: so oz asks the API server by name, at every end and before
//! every grant.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::ApiResource;
use oz_api::PodAccessRequest;
use oz_trail::{Action, Decision};

use super::grant::Grant;
use super::kind::Blocked;
use super::objects;
use super::request::StoredRequest;
use super::status::{end_message, end_reason};
use crate::controller::{Failure, Live, Plan, Sought, Step, Which};
use crate::lifecycle::End;
use crate::lifecycle::revoke::{by_power, disarm, remove};
use crate::lifecycle::seal::Keys;

/// The names of the objects of a request.
pub(super) struct GrantObjects<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: String,
    pub(super) role: String,
}

impl<'a> GrantObjects<'a> {
    /// Returns the names for a request, by its grant if the grant is known.
    pub(super) fn new(request: &StoredRequest<'a>, grant: Option<&Grant>) -> Self {
        Self {
            kind: request.kind,
            namespace: request.metadata.namespace.as_deref(),
            name: request.object_name(),
            role: grant.map_or_else(|| request.role_name(), Grant::role_name),
        }
    }

    pub(super) fn of_grant(grant: &'a Grant) -> Self {
        Self {
            kind: &grant.request.kind,
            namespace: Some(&grant.request.namespace),
            name: grant.object_name(),
            role: grant.role_name(),
        }
    }

    pub(super) fn role(&self) -> Sought {
        Sought::with_name::<Role>(self.namespace, &self.role)
    }
}

/// Returns the steps that look for objects without labels: the objects that grant access, even if they were just
/// deleted, and the Role unless it is known.
pub(super) fn unseen(names: &GrantObjects<'_>, live: &[Live]) -> Vec<Step> {
    let own_pod = names.kind == PodAccessRequest::kind(&());
    let pod = own_pod.then(|| Sought::with_name::<Pod>(names.namespace, &names.name));
    let role = live.iter().all(|live| live.resource.kind != "Role");
    std::iter::once(Sought::with_name::<RoleBinding>(
        names.namespace,
        &names.name,
    ))
    .chain(pod)
    .chain(role.then(|| names.role()))
    .map(Step::Look)
    .collect()
}

/// Returns the same plan if no known object carries a decision: all objects that oz made may be hidden.
pub(super) fn undecided(
    now: Timestamp,
    keys: &Keys,
    request: &StoredRequest<'_>,
    live: &[Live],
) -> Plan {
    if request.phase().is_terminal() {
        // The grant ended before the request was deleted.
        return Plan::default();
    }
    let known = objects::filter_own(keys, request, live);
    let live = objects::proven(keys, request, None, &objects::ours(request, &known));
    let record = (!live.is_empty()).then(|| {
        let (reason, message) = (end_reason(&End::DELETED), end_message(&End::DELETED));
        let action = Action::AccessRevoked;
        let mut record = request.record(now, action, Decision::End, reason, &message);
        record.until = request.status.and_then(|status| status.expires_at);
        Step::Record(record)
    });
    let (powerful, others) = by_power(&live);
    Plan::default()
        .then(disarm(request.marks(), &live))
        .then(powerful)
        .then(unseen(&GrantObjects::new(request, None), &live))
        .then(record)
        .then(others)
}

/// Returns the reason for granting nothing while these RoleBindings refer to the Role of the grant.
pub(super) fn others_wait(blocked: &Blocked) -> Failure {
    Failure::conflict(format!(
        "RoleBinding {} binds to Role {} and was not created by oz: its subjects would have the \
         same access. oz does not change it, and grants nothing; delete it",
        blocked.bindings.join(", "),
        blocked.role
    ))
}

/// Returns as many of the bindings as the status stores.
pub(super) fn on_record(strangers: &[String]) -> Vec<String> {
    const MOST: usize = 64;
    strangers.iter().take(MOST).cloned().collect()
}

/// Returns the plan for a request with a Role name that bindings of other authors refer to: they would get the rights
/// of the Role as soon as it exists, so the Role must not exist.
#[must_use]
pub(super) fn blocked(
    now: Timestamp,
    request: &StoredRequest<'_>,
    blocked: &Blocked,
    live: &[Live],
) -> Plan {
    let roles: Vec<Live> = objects::ours(request, live)
        .into_iter()
        .filter(|live| live.resource.kind == "Role")
        .collect();
    let failure = others_wait(blocked);
    let on_record = on_record(&blocked.bindings);
    let told = request
        .status
        .is_some_and(|status| status.foreign_bindings == on_record);
    let record = (!told).then(|| {
        let (action, note) = (Action::ForeignAccess, Decision::Note);
        Step::Record(request.record(now, action, note, failure.reason, &failure.message))
    });
    remove(request.marks(), &roles)
        // The Role may be hidden.
        .then([Step::Look(Sought::with_name::<Role>(
            request.metadata.namespace.as_deref(),
            &blocked.role,
        ))])
        .then(record)
        .because(failure)
}

/// Returns the step that looks for bindings of other authors to the Role of a grant: before its creation, and after it.
/// The store of a watch is sufficient where an admission policy has prevented (`kept`) such bindings for longer than
/// any watch lags.
/// See docs/adr/0037-what-waits-for-a-role-is-watched.md.
#[must_use]
pub(super) fn bound_by_others(grant: &Grant, kept: bool) -> Step {
    Step::Look(Sought {
        watched: kept,
        resource: ApiResource::erase::<RoleBinding>(&()),
        namespace: Some(grant.request.namespace.clone()),
        which: Which::Having("roleRef", objects::role_ref(&grant.role_name())),
    })
}
