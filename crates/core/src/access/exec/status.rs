//! What the status says of a state, as far as the plan was carried out.

use jiff::Timestamp;

use super::{Assessment, ExecAccess, Observed, State};
use crate::access::grant::Grant;
use crate::access::lifecycle;
use crate::access::objects::Objects;
use crate::access::request::Request;
use crate::access::status::{self, End, Fact};
use crate::api::{ExecAccessRequest, Phase, RequestStatus};
use crate::conditions::{self, message};
use crate::controller::{Failure, Outcome};

pub(super) fn status(
    controller: &ExecAccess,
    now: Timestamp,
    object: &ExecAccessRequest,
    observed: &Observed,
    outcome: &Outcome,
) -> RequestStatus {
    let request = Request::from(object);
    let Assessment {
        state, mut facts, ..
    } = controller.assess(now, object, observed, &outcome.live);
    let failure = outcome.failure.as_ref();
    let bound = Objects::of(&request, &outcome.live).binding.is_some();
    let known = |facts| status::with_facts(now, request.metadata, request.status, facts);
    match state {
        State::Over => request.status.cloned().unwrap_or_default(),
        State::Granted(grant) | State::Grantable(grant) => match drift(failure) {
            // The plan saw it, and has removed what showed it.
            Some(end) => lifecycle::finish(now, &request, facts, &end, Some(&grant), !bound),
            None => {
                let mut status = known(facts_of(&grant, bound, failure));
                if bound {
                    status.phase = Phase::Active;
                    status::describe(&mut status, &grant);
                }
                status.ready = status::is_ready(&status);
                status
            }
        },
        State::Ending(end, grant) => {
            let end = drift(failure).unwrap_or(end);
            // Ended is what neither gives access any more nor still lacks its record.
            let ended = !bound && (failure.is_none() || drift(failure).is_some());
            lifecycle::finish(now, &request, facts, &end, grant.as_deref(), ended)
        }
        State::Refused(phase, refusal) => {
            // For good only when it is on record.
            if failure.is_some() {
                return known(facts);
            }
            facts.push(Fact::fails(
                conditions::ACCESS_STILL_VALID,
                refusal.reason,
                refusal.message,
            ));
            let mut status = known(facts);
            status.phase = phase;
            status
        }
        State::Waiting(failure) if facts.iter().all(|fact| fact.holds) => {
            facts.push(status::resources_created(String::new(), Some(&failure)));
            known(facts)
        }
        State::Waiting(_) | State::Wants(_) => known(facts),
    }
}

fn drift(failure: Option<&Failure>) -> Option<End> {
    let failure = failure.filter(|failure| failure.reason == End::DRIFT)?;
    Some(End::Drift(failure.message.clone()))
}

fn facts_of(grant: &Grant, bound: bool, failure: Option<&Failure>) -> Vec<Fact> {
    let name = grant.object_name();
    let mut facts = vec![
        Fact::holds(
            conditions::REQUESTER_VERIFIED,
            format!("Requested by {}", grant.requester.user),
        ),
        Fact::holds(conditions::TARGET_TEMPLATE_EXISTS, message::TEMPLATE_FOUND),
        Fact::holds(conditions::ACCESS_DURATIONS_VALID, grant.window.message()),
        Fact::holds(conditions::ACCESS_STILL_VALID, message::STILL_VALID),
    ];
    if bound {
        facts.push(status::resources_created(
            format!("Success. Role {name}, RoleBinding {name} created"),
            None,
        ));
        facts.push(Fact::holds(
            conditions::ACCESS_RESOURCES_READY,
            message::READY,
        ));
    } else if let Some(failure) = failure {
        facts.push(status::resources_created(String::new(), Some(failure)));
    }
    facts
}
