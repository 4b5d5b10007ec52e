//! The assessment of a request: the rules in the order in which they apply, the same for every kind of access. The
//! window comes first.

use jiff::Timestamp;
use oz_api::{EndReason, conditions, names};

use super::approval::{self, Approvals};
use super::fact::Fact;
use super::grant::Grant;
use super::kind::{
    Assessment, Blocked, Facts, FactsOf, Kind, Move, Offer, Otherwise, Question, Special, State,
};
use super::lock::Access;
use super::objects::{self, Objects};
use super::proposal::AccessProposal;
use super::request::StoredRequest;
use super::rules::{self, Passed};
use super::{on_call, stamp, ticket};
use crate::controller::{Failure, Live};
use crate::kinds::Kind as _;
use crate::lifecycle::window;
use crate::lifecycle::{self, DueEnd, End};

/// The next question of an assessment, and the instant after which its answer has no effect.
pub(super) struct Need {
    pub(super) question: Question,
    pub(super) until: Timestamp,
}

/// Assesses a request. The window comes first: after its expiry a grant ends, also if other objects are missing,
/// invalid or unreadable.
pub(super) fn assess<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Assessment, Need> {
    let all = live;
    let live = &*objects::filter_own(kind.keys(), request, live);
    let approvals = approval::evaluate(kind, now, request, known);
    let waits_until = waits_until(request, approvals.as_ref());
    let assessed = |state, facts| Assessment {
        state,
        facts,
        waits_until,
        unlocked_at: approvals
            .as_ref()
            .and_then(|approvals| approvals.unlocked_at),
        approval: approvals.as_ref().map(|approvals| approvals.status.clone()),
    };
    let objects = Objects::from_live(request, live);
    let blocked = |grant: &Grant| blocked(kind, request, grant, &objects, all);
    if let Some(mut state) = after_grant(kind, now, request, waits_until, known, live)? {
        if let State::Granted(grant) = &mut state {
            named(kind, request, grant, &objects, known, all).map_err(|question| Need {
                question,
                until: grant.window.until,
            })?;
            if let Some(blocked) = blocked(grant) {
                state = State::Special(Special::Blocked(blocked));
            }
        }
        let closed = match &state {
            State::Ending(end, _) => refused(end),
            _ => None,
        };
        return Ok(assessed(state, closed.into_iter().collect()));
    }
    let approved = approvals.as_ref();
    let mut passed = Passed::default();
    let proposal = AccessProposal::new(kind, now, (object, request), known, approved);
    let decided = rules::before_grant(&proposal, &mut passed).map_err(Otherwise::from);
    let decided = decided.and_then(|()| proposal.offer(&mut passed));
    let decided = decided.and_then(|mut offer| {
        let question = if offer.first.is_empty() {
            named(kind, request, &mut offer.grant, &objects, known, all).err()
        } else {
            None
        };
        if let Some(blocked) = blocked(&offer.grant) {
            return Err(State::Special(Special::Blocked(blocked)).into());
        }
        tried(kind, &offer, known)?;
        approval::confirmed(approved, known.confirmed.as_ref(), Question::Approvals)?;
        question.map_or(Ok(offer), |question| Err(Otherwise::Need(question)))
    });
    let state = match decided {
        Ok(offer) => State::Grantable(Box::new(offer)),
        // Waiting ends as well, whatever was waited for.
        Err(Otherwise::State(State::Waiting(_)) | Otherwise::Need(_))
            if window::has_come(now, waits_until) =>
        {
            State::Ending(DueEnd::new(End::EXPIRED), None)
        }
        Err(Otherwise::State(State::Refused(..)))
            if stamp::read(request.metadata).is_none() && known.predecessor.is_none() =>
        {
            return Err(Need {
                question: Question::Predecessor,
                until: Timestamp::MAX,
            });
        }
        Err(Otherwise::State(state)) => state,
        Err(Otherwise::Need(question)) => {
            return Err(Need {
                question,
                until: waits_until,
            });
        }
    };
    Ok(assessed(state, passed.facts))
}

/// Returns the condition of the change ticket, or of the approval, because of which access ends.
fn refused(end: &End) -> Option<Fact> {
    let condition = match end.reason {
        EndReason::TicketClosed | EndReason::TicketCheckUnavailable => conditions::TICKET_ACCEPTED,
        EndReason::OnCallEnded | EndReason::OnCallCheckUnavailable => conditions::APPROVED,
        _ => return None,
    };
    let detail = end.detail().to_owned();
    Some(Fact::fails(condition, end.reason.into(), detail))
}

/// Sets the name of a Role that does not exist yet to the name that was found for it.
fn named<K: Kind>(
    kind: &K,
    request: &StoredRequest<'_>,
    grant: &mut Grant,
    objects: &Objects,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<(), Question> {
    if objects.role.is_some() || objects.binding.is_some() {
        return Ok(());
    }
    match &known.role_name {
        Some(name) => {
            let own = || names::own_grant_role(&grant.object_name());
            grant.role = Some(name.number.clone().unwrap_or_else(own));
        }
        None => {
            let bound = objects::bound_by_others(kind.keys(), request, live);
            return Err(Question::RoleName(bound));
        }
    }
    Ok(())
}

/// Returns the RoleBindings of other subjects to the Role of a grant without a RoleBinding, if there are any.
fn blocked<K: Kind>(
    kind: &K,
    request: &StoredRequest<'_>,
    grant: &Grant,
    objects: &Objects,
    live: &[Live],
) -> Option<Blocked> {
    // Before there is a pod, it has no name yet.
    let role = grant.role.clone().unwrap_or_else(|| request.role_name());
    let bindings = objects::strangers(kind.keys(), request, &role, live);
    let is_blocked = objects.binding.is_none() && !bindings.is_empty();
    is_blocked.then_some(Blocked { role, bindings })
}

/// Returns the instant at which a request without a grant stops waiting. Approvals have a separate timeout; after the
/// last of them, the request waits for as long as it would after its creation.
fn waits_until(request: &StoredRequest<'_>, approvals: Option<&Approvals>) -> Timestamp {
    let created = request.created();
    let plain = window::waits_until(created, request.asked().ok().flatten());
    let wait = plain.duration_since(created);
    approvals.map_or(plain, |approvals| approvals.waits_until(wait))
}

/// Checks whether the trial of the offer has succeeded, if its kind requires one.
fn tried<K: Kind>(kind: &K, offer: &Offer, known: &FactsOf<K>) -> Result<(), Otherwise> {
    let trial = known
        .template
        .as_deref()
        .and_then(|template| kind.trial(offer, template));
    let failed = |failure: Failure| Otherwise::State(State::Waiting(failure));
    match (trial, &known.tried) {
        (None, _) | (Some(Ok(_)), Some(Ok(()))) => Ok(()),
        (Some(Err(failure)), _) => Err(failed(failure)),
        (Some(Ok(_)), Some(Err(failure))) => Err(failed(failure.clone())),
        (Some(Ok(trial)), None) => Err(Otherwise::Need(Question::Trial(Box::new(trial)))),
    }
}

/// Returns the state of a request that was granted or has ended; `None` for other requests.
fn after_grant<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    waits_until: Timestamp,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Option<State>, Need> {
    if request.phase().is_terminal() {
        return Ok(Some(State::Over));
    }
    let deleted = request.metadata.deletion_timestamp.is_some();
    // An end that takes more than one pass stays the one it was.
    let begun = End::begun(request.status);
    let Some(grant) = kind.decision(request, live).map(Box::new) else {
        return without_decision(kind, now, request, (begun, waits_until), known, live);
    };
    let until = grant.window.until;
    let replaced = known.pod.as_ref().and_then(|pod| pod.replaced(&grant));
    let end = if let Some(end) = lifecycle::due(now, begun, Some(until), deleted) {
        end
    } else if let Some(lock) = known.locks.against(&Access::granted(&grant), now) {
        lock.end()
    } else if let Some(what) = kind.exchanged(request, &grant, live, known.made.as_ref()) {
        return drifted(End::drift(what), until, Some(grant), known).map(Some);
    } else if let Some(end) = kind.early_end(now, request, &grant, live) {
        if end.is_drift() {
            return drifted(end, until, Some(grant), known).map(Some);
        }
        end
    } else if let Some(end) = grant
        .ticket
        .as_ref()
        .and_then(|ticket| ticket::ended(now, ticket, &known.tickets))
        .or_else(|| {
            let on_call = grant.on_call.as_ref()?;
            on_call::ended(now, &grant.requester, on_call, &known.tickets)
        })
    {
        end
    } else if grant.following.is_none()
        && let Some(what) = replaced
    {
        End::pod_replaced(what)
    } else if grant.revoke_on_template_change
        && known
            .template
            .as_ref()
            .is_some_and(|template| template.spec_digest() != grant.template_digest)
    {
        End::TEMPLATE_CHANGED
    } else if let Some(why) = replaced {
        let next = kind.successor(&grant, known);
        match next.map_err(|question| Need { question, until })? {
            None => End::pod_replaced(format!("{why}, and so is its workload")),
            Some(to) => {
                let from = *grant;
                return Ok(Some(State::Special(Special::Moving(Box::new(Move {
                    why,
                    from,
                    to,
                })))));
            }
        }
    } else {
        return Ok(Some(State::Granted(grant)));
    };
    Ok(Some(State::Ending(DueEnd::new(end), Some(grant))))
}

/// Returns the same state for live objects that carry no decision.
fn without_decision<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    (begun, waits_until): (Option<End>, Timestamp),
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Option<State>, Need> {
    let deleted = request.metadata.deletion_timestamp.is_some();
    if begun.is_none()
        && !deleted
        && stamp::read(request.metadata).is_some()
        && let Some(failure) = kind.blocked(request, live)
    {
        return Ok(Some(if window::has_come(now, waits_until) {
            State::Ending(DueEnd::new(End::EXPIRED), None)
        } else {
            State::Waiting(failure)
        }));
    }
    let Some(what) = kind.lost(request, live) else {
        let end = lifecycle::due(now, begun, None, deleted);
        return Ok(end.map(|end| State::Ending(DueEnd::new(end), None)));
    };
    let remembered = kind.remembered(request, live).map(Box::new);
    let until = request.status.and_then(|status| status.expires_at);
    match lifecycle::due(now, begun, until, false) {
        Some(end) => Ok(Some(State::Ending(DueEnd::new(end), remembered))),
        None => {
            let end = match objects::is_retired(request, live) {
                true => End::seal_retired(),
                false => End::drift(what),
            };
            drifted(end, until.unwrap_or(Timestamp::MAX), remembered, known).map(Some)
        }
    }
}

/// Returns the state of a grant with drift or a retired seal: it ends, unless the request is being deleted.
fn drifted<T, W>(
    end: End,
    until: Timestamp,
    grant: Option<Box<Grant>>,
    known: &Facts<T, W>,
) -> Result<State, Need> {
    match known.is_deleted {
        None => Err(Need {
            question: Question::Deletion,
            until,
        }),
        Some(true) => Ok(State::Special(Special::Leaving)),
        Some(false) => Ok(State::Ending(DueEnd::new(end), grant)),
    }
}
