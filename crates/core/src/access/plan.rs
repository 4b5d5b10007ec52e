//! The plan for each state, the same for every kind of access. A grant begins with the objects that its kind requires,
//! the last of them with the sealed decision; then the Role, which carries the decision too and gives no rights without
//! a RoleBinding, and the audit record at the same time; the RoleBinding follows when both exist.

use jiff::Timestamp;
use kube::Resource;
use oz_api::encode;
use oz_trail::{Action, Decision};

use super::grant::Grant;
use super::kind::{Assessment, FactsOf, Kind, Move, Special, State};
use super::objects::{self, Objects};
use super::request::StoredRequest;
use super::{approval, emergency, ending, on_call, ticket, unseen};
use crate::build;
use crate::controller::{Child, Failure, Live, Plan, Step};
use crate::kinds::AccessRequest as _;
use crate::lifecycle::window::after;

pub(super) fn plan<K: Kind>(
    kind: &K,
    now: Timestamp,
    (object, request): (&K::Request, &StoredRequest<'_>),
    known: &FactsOf<K>,
    assessment: &Assessment,
    live: &[Live],
) -> Plan {
    let Assessment {
        state, waits_until, ..
    } = assessment;
    let waits_until = *waits_until;
    let live = &*objects::filter_own(kind.keys(), request, live);
    match state {
        State::Over => {
            let live = objects::proven(kind.keys(), request, None, live);
            ending::over(now, request, &live, kind.keep_finished())
        }
        State::Ending(end, grant) => {
            let grant = grant.as_deref();
            let live = objects::proven(kind.keys(), request, grant, live);
            ending::ending(now, request, end, grant, &live)
        }
        State::Granted(grant) if Objects::from_live(request, live).binding.is_some() => {
            let plan = kind.upkeep(request, grant, live);
            let plan = on_call::keep(now, grant, &known.tickets, plan);
            let asker = (request.uid(), grant.requester.user.as_str());
            match &grant.ticket {
                Some(ticket) => ticket::keep(now, asker, ticket, &known.tickets, plan),
                None => plan,
            }
        }
        State::Granted(grant) => granting(kind, now, object, known, grant),
        State::Special(Special::Moving(moving)) => move_on(kind, now, moving),
        State::Grantable(offer) if offer.first.is_empty() => {
            granting(kind, now, object, known, &offer.grant)
        }
        State::Grantable(offer) => offer
            .first
            .iter()
            .fold(Plan::default(), |plan, child| {
                plan.then([Step::Apply(child.clone())])
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
            let kept = after(now, kind.keep_finished().others);
            match &known.predecessor {
                Some(Err(unread)) => Plan::default().because(unread.clone()),
                left => {
                    ending::taken_away(request, left.as_ref().and_then(|it| it.as_deref().ok()))
                        .then([Step::Record(record)])
                        .wake_at(kept)
                }
            }
        }
        State::Special(Special::Blocked(blocked)) => {
            unseen::blocked(now, request, blocked, live).wake_at(waits_until)
        }
        // Soon the watch shows it, and it is ended as what was deleted is.
        State::Special(Special::Leaving) => Plan::default().because(Failure::transient(
            "CacheOutdated",
            "the request is being deleted, but the watch has not shown it yet",
        )),
        State::Waiting(failure) => {
            let said = object.status().and_then(|status| status.approval.as_ref());
            let asked = approval::requested(kind, now, request, known, assessment, said);
            let plan = Plan::default()
                .then(asked.into_iter().map(Step::Record))
                .because(failure.clone())
                .wake_at(
                    assessment
                        .unlocked_at
                        .map_or(waits_until, |at| at.min(waits_until)),
                );
            let plan = ticket::wait(kind, now, request, known, failure.reason, plan);
            on_call::wait(kind, now, request, known, assessment, plan)
        }
    }
}

fn granting<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    known: &FactsOf<K>,
    grant: &Grant,
) -> Plan {
    let (role, binding) = match sealed(kind, grant) {
        Ok(both) => both,
        Err(failure) => return Plan::default().because(failure),
    };
    let record = ending::granted(now, grant);
    let record = match emergency::proven(kind.keys(), record, grant.emergency.as_ref()) {
        Ok(record) => record,
        Err(error) => return Plan::default().because(error.into_failure("record of an emergency")),
    };
    let adoption = known.template.as_deref().and_then(|template| {
        let owner = K::Template::kind(&());
        ending::adoption(object.meta(), &owner, template.meta())
    });
    // Where a policy lets nobody bind to the name, none comes between.
    let kept = known.role_name.as_ref().is_some_and(|name| name.kept);
    let between = (!kept).then(|| unseen::bound_by_others(grant, kept));
    Plan::default()
        // A binding that waits gives access as soon as there is a Role, so before; and one that came
        // between is found after, when none can come any more: Kubernetes then checks what it gives.
        .then([unseen::bound_by_others(grant, kept)])
        .then([Step::Apply(role), Step::Record(record)])
        .then(between)
        .then([Step::Apply(binding)])
        .then(adoption.map(Step::Own))
        .wake_at(grant.window.until)
}

/// Moves a grant: the audit record, the RoleBinding, and the Role at the end. The Role gives the rights for the new
/// pod, and the grant has moved when the Role names that pod.
fn move_on<K: Kind>(kind: &K, now: Timestamp, moving: &Move) -> Plan {
    let planned = moving.to.as_ref().map_err(Clone::clone);
    let plan = match planned.and_then(|grant| Ok((grant, sealed(kind, grant)?))) {
        Ok((grant, (role, binding))) => Plan::default()
            .then([Step::Record(ending::moved(now, &moving.why, grant))])
            .then([Step::Apply(binding)])
            .then([Step::Apply(role)]),
        Err(failure) => Plan::default().because(failure),
    };
    plan.wake_at(moving.from.window.until)
}

/// Creates the Role and the RoleBinding of a grant, which both carry it.
fn sealed<K: Kind>(kind: &K, grant: &Grant) -> Result<(Child, Child), Failure> {
    let grant = &Grant {
        rules: Some(encode::digest(&Some(build::rules(grant)))),
        ..grant.clone()
    };
    let sealed = grant.seal(kind.keys());
    let sealed = sealed.map_err(|error| error.into_failure("grant"))?;
    let role = Child::new(&build::role(grant, sealed.clone()));
    Ok((role, Child::new(&build::role_binding(grant, sealed))))
}
