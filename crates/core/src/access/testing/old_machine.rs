//! The assessment of a request before the machine, and its comparison with that of the machine.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use oz_api::{ApprovalStatus, EndReason, Phase, RequestStatus, conditions, names};
use serde_json::json;

use super::{InMemory, World, order, timestamp};
use crate::access::approval::{self, Approvals};
use crate::access::assess;
use crate::access::fact::Fact;
use crate::access::grant::Grant;
use crate::access::kind::{
    Assessment, Blocked, FactsOf, Kind, Move, Offer, Question, Special, State, Stop,
};
use crate::access::lock::Access;
use crate::access::objects::{self, Objects};
use crate::access::proposal::AccessProposal;
use crate::access::request::StoredRequest;
use crate::access::rules::{self, Passed};
use crate::access::{on_call, stamp, ticket};
use crate::controller::{Failure, Live};
use crate::kinds::{AccessRequest as _, Kind as _};
use crate::lifecycle::End;
use crate::lifecycle::window::{self, has_come};

#[derive(Debug, PartialEq)]
enum OldState {
    Over,
    Ending(End, Option<Box<Grant>>),
    Granted(Box<Grant>),
    Grantable(Box<Offer>),
    Refused(Phase, Failure),
    Waiting(Failure),
    Special(Special),
}

#[derive(Debug, PartialEq)]
struct OldAssessment {
    state: OldState,
    facts: Vec<Fact>,
    waits_until: Timestamp,
    unlocked_at: Option<Timestamp>,
    approval: Option<ApprovalStatus>,
}

impl From<Assessment> for OldAssessment {
    fn from(new: Assessment) -> Self {
        Self {
            state: match new.state {
                State::Over => OldState::Over,
                State::Ending(end, grant) => OldState::Ending((*end).clone(), grant),
                State::Granted(grant) => OldState::Granted(grant),
                State::Grantable(offer) => OldState::Grantable(offer),
                State::Refused(phase, failure) => OldState::Refused(phase, failure),
                State::Waiting(failure) => OldState::Waiting(failure),
                State::Special(special) => OldState::Special(special),
            },
            facts: new.facts,
            waits_until: new.waits_until,
            unlocked_at: new.unlocked_at,
            approval: new.approval,
        }
    }
}

/// A question in words, and the instant after which its answer has no effect.
type OldNeed = (String, Timestamp);

fn old_need(question: &Question, until: Timestamp) -> OldNeed {
    (format!("{question:?}"), until)
}

/// Compares both assessments of the request, with all facts, without the answers to questions, and with the request about
/// to be deleted.
pub(crate) fn compare<K: InMemory>(world: &World<K>, now: Timestamp) {
    let unasked = FactsOf::<K> {
        confirmed: None,
        unreviewed: None,
        is_deleted: None,
        same_stamp: None,
        workload: None,
        probes: None,
        policies: None,
        tried: None,
        role_name: None,
        predecessor: None,
        ..world.facts()
    };
    let deleted = FactsOf::<K> {
        is_deleted: Some(true),
        ..world.facts()
    };
    let (kind, object, live) = (&world.controller, &world.request, &world.live);
    let request = object.stored().unwrap();
    for known in [world.facts(), unasked, deleted] {
        let new = assess::assess(kind, now, object, &request, &known, live);
        let new = new.map(OldAssessment::from);
        let new = new.map_err(|need| old_need(&need.question, need.until));
        let old = old_assess(kind, now, object, &request, &known, live);
        assert_eq!(new, old, "at {now}");
    }
}

fn old_assess<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<OldAssessment, OldNeed> {
    let all = live;
    let live = &*objects::filter_own(kind.keys(), request, live);
    let approvals = approval::evaluate(kind, now, request, known);
    let waits_until = waits_until(request, approvals.as_ref());
    let assessed = |state, facts| OldAssessment {
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
        if let OldState::Granted(grant) = &mut state {
            named(kind, request, grant, &objects, known, all)
                .map_err(|question| old_need(&question, grant.window.until))?;
            if let Some(blocked) = blocked(grant) {
                state = OldState::Special(Special::Blocked(blocked));
            }
        }
        let closed = match &state {
            OldState::Ending(end, _) => refused(end),
            _ => None,
        };
        return Ok(assessed(state, closed.into_iter().collect()));
    }
    let approved = approvals.as_ref();
    let mut passed = Passed::default();
    let proposal = AccessProposal::new(kind, now, (object, request), known, approved);
    let decided = rules::before_grant(&proposal, &mut passed);
    let decided = decided.and_then(|()| proposal.offer(&mut passed));
    let decided = decided.and_then(|mut offer| {
        let question = if offer.first.is_empty() {
            named(kind, request, &mut offer.grant, &objects, known, all).err()
        } else {
            None
        };
        if let Some(blocked) = blocked(&offer.grant) {
            return Err(Stop::Special(Special::Blocked(blocked)));
        }
        tried(kind, &offer, known)?;
        let read = known.confirmed.as_ref();
        approval::confirmed::<Special, Question>(approved, read, Question::Approvals)?;
        question.map_or(Ok(offer), |question| Err(Stop::Need(question)))
    });
    let state = match decided {
        Ok(offer) => OldState::Grantable(Box::new(offer)),
        Err(Stop::Wait(_) | Stop::Need(_)) if has_come(now, waits_until) => {
            OldState::Ending(End::EXPIRED, None)
        }
        Err(Stop::Refuse(..))
            if stamp::read(request.metadata).is_none() && known.predecessor.is_none() =>
        {
            return Err(old_need(&Question::Predecessor, Timestamp::MAX));
        }
        Err(Stop::Need(question)) => return Err(old_need(&question, waits_until)),
        Err(Stop::Wait(failure)) => OldState::Waiting(failure),
        Err(Stop::Refuse(phase, failure)) => OldState::Refused(phase, failure),
        Err(Stop::End(end)) => OldState::Ending(end, None),
        Err(Stop::Special(special)) => OldState::Special(special),
    };
    Ok(assessed(state, passed.facts))
}

fn refused(end: &End) -> Option<Fact> {
    let condition = match end.reason {
        EndReason::TicketClosed | EndReason::TicketCheckUnavailable => conditions::TICKET_ACCEPTED,
        EndReason::OnCallEnded | EndReason::OnCallCheckUnavailable => conditions::APPROVED,
        _ => return None,
    };
    let detail = end.detail().to_owned();
    Some(Fact::fails(condition, end.reason.into(), detail))
}

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

fn blocked<K: Kind>(
    kind: &K,
    request: &StoredRequest<'_>,
    grant: &Grant,
    objects: &Objects,
    live: &[Live],
) -> Option<Blocked> {
    let role = grant.role.clone().unwrap_or_else(|| request.role_name());
    let bindings = objects::strangers(kind.keys(), request, &role, live);
    let is_blocked = objects.binding.is_none() && !bindings.is_empty();
    is_blocked.then_some(Blocked { role, bindings })
}

fn waits_until(request: &StoredRequest<'_>, approvals: Option<&Approvals>) -> Timestamp {
    let created = request.created();
    let plain = window::waits_until(created, request.asked().ok().flatten());
    let wait = plain.duration_since(created);
    approvals.map_or(plain, |approvals| approvals.waits_until(wait))
}

fn tried<K: Kind>(kind: &K, offer: &Offer, known: &FactsOf<K>) -> Result<(), Stop> {
    let trial = known
        .template
        .as_deref()
        .and_then(|template| kind.trial(offer, template));
    match (trial, &known.tried) {
        (None, _) | (Some(Ok(_)), Some(Ok(()))) => Ok(()),
        (Some(Err(failure)), _) => Err(Stop::Wait(failure)),
        (Some(Ok(_)), Some(Err(failure))) => Err(Stop::Wait(failure.clone())),
        (Some(Ok(trial)), None) => Err(Stop::Need(Question::Trial(Box::new(trial)))),
    }
}

fn due(now: Timestamp, begun: Option<End>, until: Option<Timestamp>, deleted: bool) -> Option<End> {
    let over = until.is_some_and(|until| has_come(now, until));
    begun
        .or(over.then_some(End::EXPIRED))
        .or(deleted.then_some(End::DELETED))
}

fn after_grant<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    waits_until: Timestamp,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Option<OldState>, OldNeed> {
    if request.phase().is_terminal() {
        return Ok(Some(OldState::Over));
    }
    let deleted = request.metadata.deletion_timestamp.is_some();
    let begun = End::begun(request.status);
    let Some(grant) = kind.decision(request, live).map(Box::new) else {
        return without_decision(kind, now, request, (begun, waits_until), known, live);
    };
    let until = grant.window.until;
    let replaced = known.pod.as_ref().and_then(|pod| pod.replaced(&grant));
    let end = if let Some(end) = due(now, begun, Some(until), deleted) {
        end
    } else if let Some(lock) = known.locks.against(&Access::granted(&grant), now) {
        lock.end()
    } else if let Some(what) = kind.drift(request, &grant, live, known.made.as_ref()) {
        return drifted(End::drift(what), until, Some(grant), known.is_deleted).map(Some);
    } else if let Some(end) = kind.early_end(now, request, &grant, live) {
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
        match next.map_err(|question| old_need(&question, until))? {
            None => End::pod_replaced(format!("{why}, and so is its workload")),
            Some(to) => {
                let from = *grant;
                let moving = Special::Moving(Box::new(Move { why, from, to }));
                return Ok(Some(OldState::Special(moving)));
            }
        }
    } else {
        return Ok(Some(OldState::Granted(grant)));
    };
    Ok(Some(OldState::Ending(end, Some(grant))))
}

fn without_decision<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    (begun, waits_until): (Option<End>, Timestamp),
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Option<OldState>, OldNeed> {
    let deleted = request.metadata.deletion_timestamp.is_some();
    if begun.is_none()
        && !deleted
        && stamp::read(request.metadata).is_some()
        && let Some(failure) = kind.blocked(request, live)
    {
        return Ok(Some(if has_come(now, waits_until) {
            OldState::Ending(End::EXPIRED, None)
        } else {
            OldState::Waiting(failure)
        }));
    }
    let Some(what) = kind.lost(request, live) else {
        let end = due(now, begun, None, deleted);
        return Ok(end.map(|end| OldState::Ending(end, None)));
    };
    let remembered = kind.remembered(request, live).map(Box::new);
    let until = request.status.and_then(|status| status.expires_at);
    match due(now, begun, until, false) {
        Some(end) => Ok(Some(OldState::Ending(end, remembered))),
        None => {
            let end = match objects::is_retired(request, live) {
                true => End::seal_retired(),
                false => End::drift(what),
            };
            let until = until.unwrap_or(Timestamp::MAX);
            drifted(end, until, remembered, known.is_deleted).map(Some)
        }
    }
}

fn drifted(
    end: End,
    until: Timestamp,
    grant: Option<Box<Grant>>,
    is_deleted: Option<bool>,
) -> Result<OldState, OldNeed> {
    match is_deleted {
        None => Err(old_need(&Question::Deletion, until)),
        Some(true) => Ok(OldState::Special(Special::Leaving)),
        Some(false) => Ok(OldState::Ending(end, grant)),
    }
}

/// A change of a request or of its cluster.
pub(crate) type Event<K> = fn(&mut World<K>);

/// Returns the changes that are possible for every kind.
pub(crate) fn events<K: InMemory>() -> Vec<Event<K>> {
    [events_of_facts(), events_of_objects()].concat()
}

fn events_of_facts<K: InMemory>() -> Vec<Event<K>> {
    let events: [Event<K>; 12] = [
        |_| {},
        |world| {
            let target = json!({"user": "alice"});
            world.locks.all = vec![order::lock(&target)];
        },
        |world| world.locks.all.clear(),
        |world| world.records_fail = !world.records_fail,
        |world| {
            let now = Some(Time(timestamp(1)));
            world.request.meta_mut().deletion_timestamp = now;
        },
        |world| world.template = None,
        |world| {
            if let Some(template) = &mut world.template {
                K::config_mut(template).access_command = "other".into();
            }
        },
        |world| world.workload = Err(Failure::transient("Gone", "gone")),
        |world| world.request.meta_mut().annotations = None,
        |world| K::set_status(&mut world.request, RequestStatus::default()),
        |world| world.writes_left = 2,
        |world| world.writes_left = usize::MAX,
    ];
    events.to_vec()
}

fn events_of_objects<K: InMemory>() -> Vec<Event<K>> {
    fn edit<K: InMemory>(world: &mut World<K>, kind: &str, change: impl FnOnce(&mut Live)) {
        let mut live = world.live.iter_mut();
        if let Some(live) = live.find(|live| live.resource.kind == kind) {
            change(live);
        }
    }
    let events: [Event<K>; 7] = [
        |world| world.remove("Role"),
        |world| world.remove("RoleBinding"),
        |world| world.live.clear(),
        |world| {
            edit(world, "Role", |live| {
                live.object.metadata.annotations = None;
            });
        },
        |world| {
            edit(world, "RoleBinding", |live| {
                live.object.metadata.finalizers = Some(vec!["a/b".into()]);
            });
        },
        |world| {
            edit(world, "RoleBinding", |live| {
                live.object.data["subjects"][0]["name"] = json!("mallory");
            });
        },
        // The grants were sealed by an earlier release.
        |world| {
            for live in &mut world.live {
                let annotations = live.object.metadata.annotations.iter_mut();
                for text in annotations.flat_map(|all| all.values_mut()) {
                    *text = text.replacen("\"sig\":", "\"mac\":", 1);
                }
            }
        },
    ];
    events.to_vec()
}

/// A history: the number of an event, the seconds before it, and whether a pass follows.
pub(crate) type History = Vec<(usize, i64, bool)>;

/// Carries out a history, and compares both assessments at each instant.
pub(crate) fn run<K: InMemory>(mut world: World<K>, events: &[Event<K>], history: History) {
    let mut second = 1;
    for (event, seconds, passes) in history {
        second += seconds;
        events[event % events.len()](&mut world);
        compare(&world, timestamp(second));
        if passes {
            world.pass(timestamp(second));
            compare(&world, timestamp(second));
        }
    }
}
