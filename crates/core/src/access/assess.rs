//! Where a request stands: the rules in the order in which they apply, the same for every kind of
//! access. Time comes first.

use jiff::Timestamp;
use kube::Resource;

use super::continued;
use super::decide;
use super::kind::{Assessment, Case, Kind, Move, ObservedOf, Offer, State, namespace_of};
use super::objects::{self, Objects};
use super::request::Request;
use super::stamp::{self, Requester, StampError};
use super::status::Fact;
use super::window::{self, Window};
use crate::api::Phase;
use crate::conditions::{self, message, reason};
use crate::controller::{Failure, Live};
use crate::lifecycle::End;
use crate::validate::Violation;

/// Where the request stands. Time comes first: whatever else is broken, missing or unreadable, a
/// grant whose window is over is ending.
#[must_use]
pub(super) fn assess<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> Assessment {
    let request = K::view(object);
    let strangers = objects::strangers(kind.keys(), &request, live);
    let live = &*objects::known(kind.keys(), &request, live);
    let mut facts = Vec::new();
    let asked = request.asked();
    let waits_until =
        window::waits_until(request.created(), asked.as_ref().ok().copied().flatten());
    let state = after_grant(kind, now, &request, observed, live).unwrap_or_else(|| {
        match decide(kind, now, object, &request, observed, &mut facts) {
            Ok(offer) => State::Grantable(Box::new(offer)),
            Err(state) => *state,
        }
    });
    let state = match state {
        State::Ending(end, _) if end.is_drift() && observed.leaving => State::Leaving,
        State::Granted(_) | State::Grantable(_)
            if !strangers.is_empty() && Objects::of(&request, live).binding.is_none() =>
        {
            State::Blocked(strangers)
        }
        // Waiting ends as well, whatever was waited for.
        State::Waiting(_) | State::Wants(_) if now >= waits_until => {
            State::Ending(End::EXPIRED, None)
        }
        state => state,
    };
    Assessment {
        state,
        facts,
        waits_until,
    }
}

/// The state of a request for which something was granted or that has ended; `None` if there is
/// nothing of the kind.
pub(super) fn after_grant<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &Request<'_>,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> Option<State> {
    if request.phase().is_terminal() {
        return Some(State::Over);
    }
    let deleted = request.metadata.deletion_timestamp.is_some();
    // An end that takes more than one pass stays the one it was.
    let begun = End::begun(request.status);
    let Some(grant) = kind.decision(request, live).map(Box::new) else {
        if begun.is_none()
            && !deleted
            && stamp::of(request.metadata).is_some()
            && let Some(failure) = kind.blocked(request, live)
        {
            return Some(State::Waiting(failure));
        }
        if let Some(what) = kind.lost(request, live) {
            let expired = request
                .status
                .and_then(|status| status.expires_at)
                .is_some_and(|until| now >= until);
            let end = if expired {
                End::EXPIRED
            } else {
                End::drift(what)
            };
            let remembered = kind.remembered(request, live).map(Box::new);
            return Some(State::Ending(begun.unwrap_or(end), remembered));
        }
        if let Some(begun) = begun {
            return Some(State::Ending(begun, None));
        }
        return deleted.then_some(State::Ending(End::DELETED, None));
    };
    let replaced = observed.pod.as_ref().and_then(|pod| pod.replaced(&grant));
    let end = if let Some(begun) = begun {
        begun
    } else if grant.window.is_over(now) {
        End::EXPIRED
    } else if deleted {
        End::DELETED
    } else if let Some(what) = kind.exchanged(request, &grant, live, observed.made.as_ref()) {
        End::drift(what)
    } else if let Some(end) = kind.early_end(now, request, &grant, live) {
        end
    } else if grant.following.is_none()
        && let Some(what) = replaced
    {
        End::pod_replaced(what)
    } else if grant.revoke_on_template_change
        && observed
            .template
            .as_ref()
            .is_some_and(|template| K::spec_digest(template) != grant.template_digest)
    {
        End::TEMPLATE_CHANGED
    } else if let Some(why) = replaced {
        match kind
            .successor(&grant, observed.workload.as_ref())
            .transpose()
        {
            None => End::pod_replaced(format!("{why}, and so is its workload")),
            Some(to) => {
                let from = *grant;
                return Some(State::Moving(Box::new(Move { why, from, to })));
            }
        }
    } else {
        return Some(State::Granted(grant));
    };
    Some(State::Ending(end, Some(grant)))
}

/// The state of a request for which nothing was granted: who asks, by which template, for how
/// long, may they, and then what the kind itself has to say.
fn decide<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    request: &Request<'_>,
    observed: &ObservedOf<K>,
    facts: &mut Vec<Fact>,
) -> Result<Offer, Box<State>> {
    let requester = requester(kind, request, observed.same_stamp.as_ref(), facts)?;
    let asked =
        K::check_request(object).map_err(|violations| invalid_request(&violations, facts))?;
    let found = observed.template.as_deref();
    // One that is on its way out hands out nothing more.
    let stays = |template: &&K::Template| template.meta().deletion_timestamp.is_none();
    let Some(template) = found.filter(stays) else {
        let (kind, name) = (K::Template::kind(&()), request.template);
        let message = match found {
            Some(_) => format!("Error: template does not exist: {kind} {name} is being deleted"),
            None => format!(
                "Error: template does not exist: no {kind} {name} in namespace {}; \
                 create it, or delete this request and name another",
                namespace_of::<K>(object)
            ),
        };
        return Err(waiting(
            facts,
            conditions::TARGET_TEMPLATE_EXISTS,
            Failure::invalid(reason::NOT_FOUND, message),
        ));
    };
    facts.push(Fact::holds(
        conditions::TARGET_TEMPLATE_EXISTS,
        message::TEMPLATE_FOUND,
    ));
    decide::may(
        &requester,
        request.template,
        K::config(template),
        request.ask,
    )
    .and_then(|()| {
        let created = request.created();
        continued::may(&requester, request, created, observed.continued.as_ref())
    })
    .map_err(|denial| refused(facts, denial.reason, denial.message))?;
    let terms = K::check_template(template)
        .map_err(|violations| invalid_template(request.template, &violations, facts))?;
    let window = Window::new(request.created(), asked.duration, terms.default, terms.max);
    facts.push(Fact::holds(
        conditions::ACCESS_DURATIONS_VALID,
        window.message(),
    ));
    if window.is_over(now) {
        return Err(Box::new(State::Ending(End::EXPIRED, None)));
    }
    facts.push(Fact::holds(
        conditions::ACCESS_STILL_VALID,
        message::STILL_VALID,
    ));
    let workload = match (K::target(template), &observed.workload) {
        (None, _) => None,
        (Some(target), None) => return Err(Box::new(State::Wants(target))),
        (Some(_), Some(Err(failure))) => return Err(Box::new(State::Waiting(failure.clone()))),
        (Some(_), Some(Ok(workload))) => Some(workload),
    };
    kind.offer(Case {
        now,
        request: request.clone(),
        asked,
        requester,
        template,
        terms,
        window,
        workload,
        continued: observed.continued.as_ref(),
        tried: observed.tried.as_ref(),
        policies: observed
            .policies
            .as_ref()
            .map(|policies| policies.as_deref()),
    })
    .map_err(Box::new)
}

fn requester<K: Kind>(
    kind: &K,
    request: &Request<'_>,
    same_stamp: Option<&String>,
    facts: &mut Vec<Fact>,
) -> Result<Requester, Box<State>> {
    let verified = stamp::verify(
        kind.keys(),
        request.kind,
        request.metadata,
        &request.spec_digest,
    );
    let verified = match same_stamp {
        Some(older) => verified.and(Err(StampError::Replayed(older.clone()))),
        None => verified,
    };
    match verified {
        Ok(requester) => {
            facts.push(Fact::holds(
                conditions::REQUESTER_VERIFIED,
                format!("Requested by {}", requester.user),
            ));
            Ok(requester)
        }
        Err(error) => Err(refused(facts, error.reason(), error.to_string())),
    }
}

fn refused(facts: &mut Vec<Fact>, reason: &'static str, message: String) -> Box<State> {
    facts.retain(|fact| fact.type_ != conditions::REQUESTER_VERIFIED);
    facts.push(Fact::fails(
        conditions::REQUESTER_VERIFIED,
        reason,
        message.clone(),
    ));
    Box::new(State::Refused(
        Phase::Denied,
        Failure::invalid(reason, message),
    ))
}

fn waiting(facts: &mut Vec<Fact>, type_: &'static str, failure: Failure) -> Box<State> {
    facts.push(Fact::fails(type_, failure.reason, failure.message.clone()));
    Box::new(State::Waiting(failure))
}

/// The spec cannot change, so what is wrong with it stays wrong.
fn invalid_request(violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations
        .iter()
        .find(|violation| violation.is_about_duration())
    {
        Some(violation) => format!(
            "request error: \"access request duration invalid\": {}",
            violation.message
        ),
        None => Violation::list(violations),
    };
    facts.push(Fact::fails(
        conditions::ACCESS_DURATIONS_VALID,
        reason::BAD_REQUEST,
        message.clone(),
    ));
    Box::new(State::Refused(
        Phase::Failed,
        Failure::invalid(reason::BAD_REQUEST, message),
    ))
}

/// The template may be mended, so the request waits for it.
fn invalid_template(name: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations
        .iter()
        .find(|violation| violation.is_about_duration())
    {
        Some(violation) => format!(
            "template error: \"access request duration invalid\": {}",
            violation.message
        ),
        None => format!(
            "template {name} cannot be used: {}",
            Violation::list(violations)
        ),
    };
    waiting(
        facts,
        conditions::ACCESS_DURATIONS_VALID,
        Failure::invalid(reason::BAD_REQUEST, message),
    )
}
