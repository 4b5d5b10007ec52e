//! What no watch shows. Children are known by labels, and whoever may write RBAC objects can take labels
//! off, or have a binding of their own wait for a Role: so the API server is asked by name, at every end
//! and before anything is granted.

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
use super::request::Request;
use super::status::{end_message, end_reason};
use crate::controller::{Failure, Live, Plan, Sought, Step, Which};
use crate::lifecycle::End;
use crate::lifecycle::revoke::{by_power, disarm, remove};
use crate::lifecycle::seal::Keys;

/// Where the objects of a request are.
pub(super) struct GrantObjects<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: String,
    pub(super) role: String,
}

impl<'a> GrantObjects<'a> {
    /// Of a request, by its grant if that is known.
    pub(super) fn of(request: &Request<'a>, grant: Option<&Grant>) -> Self {
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
        Sought::named::<Role>(self.namespace, &self.role)
    }
}

/// What may be there although no label tells of it: what gives access, even if it was just deleted, and
/// the Role unless it is known.
pub(super) fn unseen(names: &GrantObjects<'_>, live: &[Live]) -> Vec<Step> {
    let own_pod = names.kind == PodAccessRequest::kind(&());
    let pod = own_pod.then(|| Sought::named::<Pod>(names.namespace, &names.name));
    let role = live.iter().all(|live| live.resource.kind != "Role");
    std::iter::once(Sought::named::<RoleBinding>(names.namespace, &names.name))
        .chain(pod)
        .chain(role.then(|| names.role()))
        .map(Step::Look)
        .collect()
}

/// The same if nothing that is known carries a decision: what oz made may be hidden, all of it.
pub(super) fn undecided(now: Timestamp, keys: &Keys, request: &Request<'_>, live: &[Live]) -> Plan {
    if request.phase().is_terminal() {
        // It ended before it went.
        return Plan::default();
    }
    let known = objects::known(keys, request, live);
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
        .then(unseen(&GrantObjects::of(request, None), &live))
        .then(record)
        .then(others)
}

/// Why nothing is granted while these RoleBindings bind to the Role that it would be.
pub(super) fn others_wait(blocked: &Blocked) -> Failure {
    Failure::conflict(format!(
        "RoleBinding {} binds to Role {} and was not made by oz: whoever it names would have \
         the same access. It is left alone, and nothing is granted; delete it",
        blocked.bindings.join(", "),
        blocked.role
    ))
}

/// As many of them as the status keeps.
pub(super) fn on_record(strangers: &[String]) -> Vec<String> {
    const MOST: usize = 64;
    strangers.iter().take(MOST).cloned().collect()
}

/// The plan for a request whose Role others wait for with bindings of their own: they would have what
/// it hands out as soon as it exists, so it must not.
#[must_use]
pub(super) fn blocked(
    now: Timestamp,
    request: &Request<'_>,
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
        // One that is hidden.
        .then([Step::Look(Sought::named::<Role>(
            request.metadata.namespace.as_deref(),
            &blocked.role,
        ))])
        .then(record)
        .because(failure)
}

/// Looks whether somebody binds to the Role of a grant: before it is made, and once it is. What a watch shows is
/// enough where a policy has `kept` others from it, for longer than any watch is behind.
#[must_use]
pub(super) fn bound_by_others(grant: &Grant, kept: bool) -> Step {
    Step::Look(Sought {
        watched: kept,
        resource: ApiResource::erase::<RoleBinding>(&()),
        namespace: Some(grant.request.namespace.clone()),
        which: Which::Having("roleRef", objects::role_ref(&grant.role_name())),
    })
}
