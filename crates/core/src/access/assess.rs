//! The assessment of a request: the rules in the order in which they apply, the same for every kind of access. The
//! window comes first.

use jiff::Timestamp;
use kube::Resource;
use oz_api::conditions::{self, message, reason};
use oz_api::{Phase, names};

use super::approval::{self, Approvals};
use super::grant::Grant;
use super::kind::{
    Assessment, Blocked, Case, Facts, FactsOf, Kind, Move, Offer, Otherwise, Question, Special,
    State,
};
use super::lock::Access;
use super::objects::{self, Objects};
use super::request::StoredRequest;
use super::stamp::{self, Stamp, StampError};
use super::status::Fact;
use super::ticket::{self, Fresh};
use super::{continued, decide, emergency, policy};
use crate::controller::{Failure, Live};
use crate::gate;
use crate::kinds::{AccessRequest as _, AccessTemplate, Kind as _};
use crate::lifecycle::window::{self, Window};
use crate::lifecycle::{self, End};
use crate::validate::Violation;

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
    let mut facts = Vec::new();
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
        if let State::Ending(end, _) = &state {
            facts.extend(ticket::closed(end));
        }
        return Ok(assessed(state, facts));
    }
    let approved = approvals.as_ref();
    let decided = decide(kind, now, object, request, approved, known, &mut facts);
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
            State::Ending(End::EXPIRED, None)
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
    let mut assessment = assessed(state, facts);
    if ticket::is_waited_for(&assessment.state) {
        // Nobody is asked to approve yet, and a status that said so would keep it from being put on record.
        assessment.approval = request.status.and_then(|status| status.approval.clone());
    }
    Ok(assessment)
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
    Ok(Some(State::Ending(end, Some(grant))))
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
            State::Ending(End::EXPIRED, None)
        } else {
            State::Waiting(failure)
        }));
    }
    let Some(what) = kind.lost(request, live) else {
        let end = lifecycle::due(now, begun, None, deleted);
        return Ok(end.map(|end| State::Ending(end, None)));
    };
    let remembered = kind.remembered(request, live).map(Box::new);
    let until = request.status.and_then(|status| status.expires_at);
    match lifecycle::due(now, begun, until, false) {
        Some(end) => Ok(Some(State::Ending(end, remembered))),
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
        Some(false) => Ok(State::Ending(end, grant)),
    }
}

/// Decides about a request without a grant: the requester, the template, the duration, the permission, and then the
/// conditions of its kind.
fn decide<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    request: &StoredRequest<'_>,
    approvals: Option<&Approvals>,
    known: &FactsOf<K>,
    facts: &mut Vec<Fact>,
) -> Result<Offer, Otherwise> {
    let Stamp {
        requester,
        judgement,
        ..
    } = stamp(kind, request, facts)?;
    let found = known.template.as_deref();
    let config = found.map(AccessTemplate::config);
    let namespace = request.metadata.namespace.as_deref();
    let access = Access::asked(request, namespace, &requester, config);
    known.locks.admit(&access, now).map_err(State::from)?;
    let asked = object
        .check()
        .map_err(|violations| invalid_request(&violations, facts))?;
    let template = staying::<K>(request, found)
        .map_err(|failure| waiting(facts, conditions::TARGET_TEMPLATE_EXISTS, failure))?;
    facts.push(Fact::holds(
        conditions::TARGET_TEMPLATE_EXISTS,
        message::TEMPLATE_FOUND,
    ));
    decide::may(&requester, request.template, template.config(), request.ask)
        .and_then(|()| {
            let created = request.created();
            continued::may(&requester, request, created, known.continued.as_ref())
        })
        .map_err(|denial| refused(facts, denial.reason, denial.message))?;
    let gate = policy::holds(judgement.as_ref(), request.ask, template)
        .and_then(|()| gate::needed(kind.gate(), request.template, template.config()))
        .map_err(|denial| refused(facts, denial.reason, denial.message))?;
    let terms = template
        .check()
        .map_err(|violations| invalid_template(request.template, &violations, facts))?;
    let emergency = emergency::settled(request, template.config())?;
    let ticket = ticket::terms(request.ask, judgement.as_ref(), template);
    let ticket_at = |fresh, facts: &mut Vec<Fact>| {
        ticket::settled(now, request, ticket.clone(), &known.tickets, fresh, facts)
    };
    // Who has to agree is not bothered with a ticket that is none.
    ticket_at(Fresh::SinceCreated, facts)?;
    let needed = policy::approval(judgement.as_ref(), template).is_some() && emergency.is_none();
    let approvals = approval::settled(needed, approvals, facts)?;
    // Nobody loses time by waiting for others.
    let from = if needed {
        whole_second(now)
    } else {
        request.created()
    };
    let longest = emergency::longest(template.config(), emergency.is_some(), terms.max);
    let max = policy::longest(judgement.as_ref(), longest);
    let window = Window::new(from, asked.duration, terms.default, max);
    facts.push(Fact::holds(
        conditions::ACCESS_DURATIONS_VALID,
        window.message(),
    ));
    if window.is_over(now) {
        return Err(State::Ending(End::EXPIRED, None).into());
    }
    facts.push(Fact::holds(
        conditions::ACCESS_STILL_VALID,
        message::STILL_VALID,
    ));
    is_first(known, facts)?;
    let ticket = ticket_at(Fresh::Now, facts)?;
    emergency::confirmed::<K>(emergency.as_ref(), &requester, request, known, facts)?;
    let workload = workload::<K>(template, known)?;
    kind.offer(Case {
        now,
        request: request.clone(),
        asked,
        requester,
        template,
        terms,
        window,
        approvals,
        judgement,
        ticket,
        emergency: emergency.map(|terms| terms.granted(now)),
        gate,
        workload,
        continued: known.continued.as_ref(),
        probes: known.probes.as_deref(),
        policies: known.policies.as_ref().map(|policies| policies.as_deref()),
    })
}

/// Returns the data of the workload, if the template names one.
fn workload<'a, K: Kind>(
    template: &K::Template,
    known: &'a FactsOf<K>,
) -> Result<Option<&'a K::Workload>, Otherwise> {
    match (template.workload(), &known.workload) {
        (None, _) => Ok(None),
        (Some(target), None) => Err(Otherwise::Need(Question::Workload(target.clone()))),
        (Some(_), Some(Err(failure))) => Err(State::Waiting(failure.clone()).into()),
        (Some(_), Some(Ok(workload))) => Ok(Some(workload)),
    }
}

/// Returns the template, if it exists and is not being deleted: a deleted template grants nothing.
fn staying<'a, K: Kind>(
    request: &StoredRequest<'_>,
    found: Option<&'a K::Template>,
) -> Result<&'a K::Template, Failure> {
    let (kind, name) = (K::Template::kind(&()), request.template);
    let message = match found {
        Some(template) if template.meta().deletion_timestamp.is_none() => return Ok(template),
        Some(_) => format!("Error: template does not exist: {kind} {name} is being deleted"),
        None => format!(
            "Error: template does not exist: no {kind} {name} in namespace {}; \
             create it, or delete this request and name another",
            request.reference().namespace
        ),
    };
    Err(Failure::invalid(reason::NOT_FOUND, message))
}

/// Returns the beginning of the second of an instant: an expiry is in whole seconds, and none is later than agreed.
fn whole_second(instant: Timestamp) -> Timestamp {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant)
}

/// Checks that no other request has the same stamp.
fn is_first<T, W>(known: &Facts<T, W>, facts: &mut Vec<Fact>) -> Result<(), Otherwise> {
    match &known.same_stamp {
        None => Err(Otherwise::Need(Question::SameStamp)),
        Some(None) => Ok(()),
        Some(Some(other)) => {
            // Nothing else is said of what somebody copied.
            facts.clear();
            let error = StampError::Replayed(other.clone());
            Err(refused(facts, error.reason(), error.to_string()).into())
        }
    }
}

/// Opens the stamp: the requester, and the judgement of the access policies at the creation of the request.
fn stamp<K: Kind>(
    kind: &K,
    request: &StoredRequest<'_>,
    facts: &mut Vec<Fact>,
) -> Result<Stamp, State> {
    match request.stamp(kind.keys()) {
        Ok(stamp) => {
            facts.push(Fact::holds(
                conditions::REQUESTER_VERIFIED,
                format!("Requested by {}", stamp.requester.user),
            ));
            Ok(stamp)
        }
        Err(error @ StampError::Unverified(_)) => Err(waiting(
            facts,
            conditions::REQUESTER_VERIFIED,
            error.failure(),
        )),
        Err(error) => Err(refused(facts, error.reason(), error.to_string())),
    }
}

fn refused(facts: &mut Vec<Fact>, reason: &'static str, message: String) -> State {
    facts.retain(|fact| fact.type_ != conditions::REQUESTER_VERIFIED);
    facts.push(Fact::fails(
        conditions::REQUESTER_VERIFIED,
        reason,
        message.clone(),
    ));
    State::Refused(Phase::Denied, Failure::invalid(reason, message))
}

fn waiting(facts: &mut Vec<Fact>, type_: &'static str, failure: Failure) -> State {
    facts.push(Fact::fails(type_, failure.reason, failure.message.clone()));
    State::Waiting(failure)
}

/// Returns the final state of a request with an invalid spec, which is immutable.
fn invalid_request(violations: &[Violation], facts: &mut Vec<Fact>) -> State {
    let failure = invalid("request", "", violations, facts);
    State::Refused(Phase::Failed, failure)
}

/// Returns the state of a request with an invalid template. Its author may repair it, so the request waits.
fn invalid_template(name: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> State {
    let unusable = format!("template {name} cannot be used: ");
    State::Waiting(invalid("template", &unusable, violations, facts))
}

fn invalid(what: &str, why: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> Failure {
    let of_duration = violations.iter().find(|one| one.is_about_duration());
    let message = match of_duration.map(|violation| &violation.message) {
        Some(wrong) => format!("{what} error: \"access request duration invalid\": {wrong}"),
        None => format!("{why}{}", Violation::list(violations)),
    };
    let (type_, reason) = (conditions::ACCESS_DURATIONS_VALID, reason::BAD_REQUEST);
    facts.push(Fact::fails(type_, reason, message.clone()));
    Failure::invalid(reason, message)
}
