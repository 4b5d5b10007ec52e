//! The status of each state of a request after a plan was carried out, up to the first failure; the
//! same for every kind of access.

use jiff::Timestamp;
use oz_api::conditions::{self, message};
use oz_api::{Phase, RequestStatus};

use super::ending::{self, CleanupResult};
use super::grant::Grant;
use super::kind::{Assessment, Kind, Special, State};
use super::objects::{self, Objects};
use super::request::StoredRequest;
use super::status::{self, Fact};
use super::{approval, emergency, ticket, unseen};
use crate::controller::{Failure, Live, Outcome};
use crate::kinds::AccessRequest as _;
use crate::sessions::SessionsEnded;

pub(super) fn status<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    assessment: &Assessment,
    outcome: &Outcome,
) -> RequestStatus {
    let Ok(request) = object.stored() else {
        return object.status().cloned().unwrap_or_default();
    };
    let mut facts = assessment.facts.clone();
    let live = &*objects::filter_own(kind.keys(), &request, &outcome.live);
    let failure = outcome.failure.as_ref();
    ticket::limit(&mut facts, failure);
    let sessions = SessionsEnded::find(&outcome.answers, request.uid());
    let sessions = sessions.as_ref();
    // Without a grant there is nothing to use, whatever another program said before oz.
    let said = request.status.and_then(|status| status.approval.as_ref());
    let approval = || {
        approval::shown(
            assessment.state.waits(),
            assessment.approval.as_ref(),
            failure,
            said,
        )
    };
    let known = |facts| RequestStatus {
        ready: false,
        access_message: None,
        approval: approval(),
        ..status::with_facts(now, request.metadata, request.status, facts)
    };
    match &assessment.state {
        State::Over | State::Special(Special::Leaving) => {
            request.status.cloned().unwrap_or_default()
        }
        State::Granted(grant) => granted(kind, now, &request, grant, live, failure, None),
        State::Grantable(offer) => granted(kind, now, &request, &offer.grant, live, failure, None),
        State::Special(Special::Moving(moving)) => match (&moving.to, failure) {
            (Ok(to), None) => granted(kind, now, &request, to, live, None, None),
            (to, _) => {
                let message = match failure.or(to.as_ref().err()) {
                    Some(waits) => format!("{}; {waits}", moving.why),
                    None => moving.why.to_string(),
                };
                let ready = conditions::ACCESS_RESOURCES_READY;
                let moves = Fact::fails(ready, "PodReplaced", message);
                granted(kind, now, &request, &moving.from, live, None, Some(moves))
            }
        },
        State::Ending(end, grant) => {
            let grant = grant.as_deref();
            let live = objects::proven(kind.keys(), &request, grant, live);
            let cleanup = CleanupResult { failure, sessions };
            ending::finish(now, &request, facts, end, grant, &live, cleanup)
        }
        State::Refused(phase, refusal) => {
            // For good only when it is on record.
            if failure.is_some() {
                return known(facts);
            }
            if facts.iter().all(|fact| fact.holds) {
                facts.push(status::resources_created(String::new(), Some(refusal)));
            }
            facts.push(Fact::fails(
                conditions::ACCESS_STILL_VALID,
                refusal.reason,
                refusal.message.clone(),
            ));
            let mut status = known(facts);
            status.phase = *phase;
            status
        }
        State::Special(Special::Blocked(blocked)) => {
            let failure = unseen::others_wait(blocked);
            facts.retain(|fact| fact.type_ != conditions::ACCESS_RESOURCES_CREATED);
            facts.push(status::resources_created(String::new(), Some(&failure)));
            RequestStatus {
                foreign_bindings: unseen::on_record(&blocked.bindings),
                ..known(facts)
            }
        }
        State::Waiting(failure) if facts.iter().all(|fact| fact.holds) => {
            facts.push(status::resources_created(String::new(), Some(failure)));
            known(facts)
        }
        State::Waiting(_) => known(facts),
    }
}

fn granted<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    grant: &Grant,
    live: &[Live],
    failure: Option<&Failure>,
    moves: Option<Fact>,
) -> RequestStatus {
    let bound = Objects::from_live(request, live).binding.is_some();
    if !bound && failure.is_none() {
        // Half way, on to the rest: not worth a write.
        return request.status.cloned().unwrap_or_default();
    }
    let on_call = grant.on_call.as_ref();
    let approved = (!grant.approvals.is_empty() || on_call.is_some())
        .then(|| approval::granted(&grant.approvals, on_call));
    let mut facts = vec![
        Fact::holds(
            conditions::REQUESTER_VERIFIED,
            format!("Requested by {}", grant.requester.user),
        ),
        Fact::holds(conditions::TARGET_TEMPLATE_EXISTS, message::TEMPLATE_FOUND),
        Fact::holds(conditions::ACCESS_DURATIONS_VALID, grant.window.message()),
        Fact::holds(conditions::ACCESS_STILL_VALID, message::STILL_VALID),
    ];
    facts.extend(approved);
    facts.extend(grant.ticket.as_ref().map(ticket::fact));
    facts.extend(grant.emergency.as_ref().map(emergency::fact));
    if bound {
        facts.push(status::resources_created(kind.created(grant), None));
        let said = kind.facts(request, grant, live).into_iter();
        let moving = |fact: &Fact| {
            moves
                .as_ref()
                .is_some_and(|moves| moves.type_ == fact.type_)
        };
        facts.extend(said.filter(|fact| !moving(fact)));
        facts.extend(moves);
    } else if let Some(failure) = failure {
        facts.push(status::resources_created(String::new(), Some(failure)));
    }
    let mut status = status::with_facts(now, request.metadata, request.status, facts);
    if bound {
        status.phase = Phase::Active;
        status::describe(&mut status, grant);
    }
    status.ready = status::is_ready(&status);
    let has_started = !request.makes_pod || request.phase() == Phase::Active;
    if bound && !status.ready && !has_started {
        status.phase = Phase::Starting;
    }
    status
}
