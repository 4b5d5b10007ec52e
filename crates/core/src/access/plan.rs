//! What a state asks for, the same for every kind of access. Granting: what the kind needs first,
//! the last of it with the sealed decision; the Role, which gives nobody anything yet and carries
//! the decision too, beside the audit record; the RoleBinding only when both are there.

use jiff::Timestamp;
use kube::Resource;

use super::assess::assess;
use super::grant::Grant;
use super::kind::{Assessment, Kind, Move, ObservedOf, State};
use super::lifecycle;
use super::objects::{self, Objects};
use super::unseen;
use crate::audit::{Action, Decision};
use crate::build;
use crate::controller::{Child, Failure, Live, Plan, Step};
use crate::encode;

pub(super) fn plan<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> Plan {
    let request = K::view(object);
    let Assessment {
        state, waits_until, ..
    } = assess(kind, now, object, observed, live);
    let live = &*objects::known(kind.keys(), &request, live);
    match state {
        State::Over => {
            let live = objects::proven(kind.keys(), &request, None, live);
            lifecycle::over(now, &request, &live, kind.keep_finished())
        }
        State::Ending(end, grant) => {
            let grant = grant.as_deref();
            let live = objects::proven(kind.keys(), &request, grant, live);
            lifecycle::ending(now, &request, &end, grant, &live)
        }
        State::Granted(grant) if Objects::of(&request, live).binding.is_some() => {
            kind.upkeep(&request, &grant, live)
        }
        State::Granted(grant) => granting(kind, now, object, observed, &grant),
        State::Moving(moving) => move_on(kind, now, &moving),
        State::Grantable(offer) if offer.first.is_empty() => {
            granting(kind, now, object, observed, &offer.grant)
        }
        State::Grantable(offer) => offer
            .first
            .into_iter()
            .fold(Plan::default(), |plan, child| {
                plan.then([Step::Apply(child)])
            })
            // What follows depends on what the API server makes of these.
            .wake_at(now),
        State::Refused(_, failure) => {
            let record = request.record(
                now,
                Action::RequestDenied,
                Decision::Deny,
                failure.reason,
                &failure.message,
            );
            // Its status says so from now on, and is kept for as long as that of others.
            let kept = now
                .checked_add(kind.keep_finished())
                .unwrap_or(Timestamp::MAX);
            match &observed.left {
                Some(Err(unread)) => Plan::default().because(unread.clone()),
                left => {
                    lifecycle::taken_away(&request, left.as_ref().and_then(|it| it.as_deref().ok()))
                        .then([Step::Record(record)])
                        .wake_at(kept)
                }
            }
        }
        State::Blocked(strangers) => {
            unseen::blocked(now, &request, &strangers, live).wake_at(waits_until)
        }
        // Soon the watch shows it, and it is ended as what was deleted is.
        State::Leaving => Plan::default().because(Failure::transient(
            "NotSeenYet",
            "the request is being deleted, but the watch has not shown it yet",
        )),
        State::Waiting(failure) => Plan::default().because(failure).wake_at(waits_until),
        State::Wants(target) => Plan::default()
            .because(Failure::transient(
                "NotObserved",
                format!("{} {} was not looked up yet", target.kind, target.name),
            ))
            .wake_at(waits_until),
    }
}

fn granting<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    observed: &ObservedOf<K>,
    grant: &Grant,
) -> Plan {
    let (role, binding) = match sealed(kind, grant) {
        Ok(both) => both,
        Err(failure) => return Plan::default().because(failure),
    };
    let adoption = observed.template.as_deref().and_then(|template| {
        let owner = K::Template::kind(&());
        lifecycle::adoption(object.meta(), &owner, template.meta())
    });
    Plan::default()
        // A binding that waits gives access as soon as there is a Role, so before; and one that came
        // between is found after, when none can come any more: Kubernetes then checks what it gives.
        .then([unseen::bound_by_others(grant)])
        .then([
            Step::Apply(role),
            Step::Record(lifecycle::granted(now, grant)),
        ])
        .then([unseen::bound_by_others(grant)])
        .then([Step::Apply(binding)])
        .then(adoption.map(Step::Own))
        .wake_at(grant.window.until)
}

/// On record first. The Role is last: it opens the pod, and until it says so the grant has not moved.
fn move_on<K: Kind>(kind: &K, now: Timestamp, moving: &Move) -> Plan {
    let planned = moving.to.as_ref().map_err(Clone::clone);
    let plan = match planned.and_then(|grant| Ok((grant, sealed(kind, grant)?))) {
        Ok((grant, (role, binding))) => Plan::default()
            .then([Step::Record(lifecycle::moved(now, &moving.why, grant))])
            .then([Step::Apply(binding)])
            .then([Step::Apply(role)]),
        Err(failure) => Plan::default().because(failure),
    };
    plan.wake_at(moving.from.window.until)
}

/// Role and RoleBinding of a grant, which carry it.
fn sealed<K: Kind>(kind: &K, grant: &Grant) -> Result<(Child, Child), Failure> {
    let grant = &Grant {
        rules: Some(encode::digest(&Some(build::rules(grant)))),
        ..grant.clone()
    };
    let sealed = grant.seal(kind.keys()).map_err(|error| {
        Failure::invalid("SealFailed", format!("failed to seal the grant: {error}"))
    })?;
    let role = Child::new(&build::role(grant, sealed.clone()));
    Ok((role, Child::new(&build::role_binding(grant, sealed))))
}
