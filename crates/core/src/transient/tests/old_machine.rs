//! The assessment of a transient binding before the machine, and the comparison of both on the same histories.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{ApprovalStatus, EndReason, Phase, TransientRoleBinding, conditions, labels};
use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use crate::access::approval;
use crate::access::fact::Fact;
use crate::access::lock::{Access, Locks};
use crate::access::policy;
use crate::access::rules::{self, Passed};
use crate::access::testing::judgements::{TIMEOUT, answer, judgement, require};
use crate::access::testing::order;
use crate::controller::{Failure, Live};
use crate::lifecycle::drift::Drift;
use crate::lifecycle::window::has_come;
use crate::lifecycle::{End, seal};
use crate::transient::grant::Grant;
use crate::transient::kind::{StoredBinding, Transient};
use crate::transient::proposal::{BindingProposal, Stop};
use crate::transient::{Assessment, Facts, Kind, Opens, Question, State};

#[derive(Debug, PartialEq)]
enum OldState {
    Over,
    Ending(End, Option<Box<Grant>>),
    Granted(Box<Grant>),
    Grantable(Box<Grant>),
    Refused(Phase, Failure),
    Waiting(Failure),
    Special(Opens),
}

#[derive(Debug, PartialEq)]
struct OldAssessment {
    state: OldState,
    approved: Option<Fact>,
    approval: Option<ApprovalStatus>,
    waits_until: Timestamp,
    unlocked_at: Option<Timestamp>,
}

impl From<Assessment> for OldAssessment {
    fn from(new: Assessment) -> Self {
        Self {
            state: match new.state {
                State::Over => OldState::Over,
                State::Ending(end, grant) => OldState::Ending((*end).clone(), grant),
                State::Granted(grant) => OldState::Granted(grant),
                State::Grantable(grant) => OldState::Grantable(grant),
                State::Refused(phase, failure) => OldState::Refused(phase, failure),
                State::Waiting(failure) => OldState::Waiting(failure),
                State::Special(opens) => OldState::Special(opens),
            },
            approved: new.approved,
            approval: new.approval,
            waits_until: new.waits_until,
            unlocked_at: new.unlocked_at,
        }
    }
}

/// A question in words, and the instant after which its answer has no effect.
type OldNeed = (String, Timestamp);

fn old_need(question: &Question, until: Timestamp) -> OldNeed {
    (format!("{question:?}"), until)
}

fn assess<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    known: &Facts,
    live: &[Live],
) -> Result<OldAssessment, OldNeed> {
    let terms = binding.terms.as_ref();
    let waits_until = terms.map_or(now, |terms| terms.gives_up(binding.created()));
    let mut assessment = OldAssessment {
        state: OldState::Over,
        approved: None,
        approval: None,
        waits_until,
        unlocked_at: None,
    };
    if let Some(state) = after_activation(transient, now, binding, known, live) {
        let granted = match &state {
            OldState::Granted(grant) => grant.approvals.as_slice(),
            _ => &[],
        };
        assessment.approved = (!granted.is_empty()).then(|| approval::fact(granted));
        assessment.state = state;
        return Ok(assessment);
    }
    let decided = undecided(transient, now, binding, known, &mut assessment);
    assessment.state = match decided {
        Ok(grant) => OldState::Grantable(Box::new(grant)),
        Err(Stop::Wait(failure)) => OldState::Waiting(failure),
        Err(Stop::Refuse(phase, failure)) => OldState::Refused(phase, failure),
        Err(Stop::End(end)) => OldState::Ending(end, None),
        Err(Stop::Special(opens)) => OldState::Special(opens),
        Err(Stop::Need(question)) => {
            return Err(old_need(&question, assessment.waits_until));
        }
    };
    Ok(assessment)
}

fn after_activation<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    known: &Facts,
    live: &[Live],
) -> Option<OldState> {
    let decided = live.iter().find_map(|live| {
        let grant = Grant::open(&transient.keys, live, &binding.api_version, binding.uid())?;
        Some((grant, live))
    });
    let status = binding.status;
    let phase = status.map_or(Phase::Pending, |status| status.phase);
    if phase.is_terminal() {
        return Some(OldState::Over);
    }
    let grant = decided.as_ref().map(|(grant, _)| Box::new(grant.clone()));
    let deleted = binding.metadata.deletion_timestamp.is_some();
    let until = match &grant {
        Some(grant) => Some(grant.until),
        None => status.and_then(|status| status.expires_at),
    };
    let begun = status.and_then(|status| status.ending.clone());
    let locked = begun.filter(|ending| ending.reason == EndReason::Locked);
    let begun = deleted.then_some(End::DELETED).or(locked.map(End::from));
    let expired = until.is_some_and(|until| has_come(now, until));
    if let Some(end) = begun.or(expired.then_some(End::EXPIRED)) {
        return Some(OldState::Ending(end, grant));
    }
    let lock = grant.as_ref().and_then(|grant| {
        let subjects = &grant.subjects;
        let access = Access::bound(&grant.requester, subjects, binding.namespace());
        known.locks.against(&access, now)
    });
    if let Some(lock) = lock {
        return Some(OldState::Ending(lock.end(), grant));
    }
    let is_retired = || {
        let mut found = live.iter().map(|live| &live.object.metadata);
        found.any(|metadata| seal::is_retired_on(metadata, labels::GRANT))
    };
    if grant.is_none() && phase == Phase::Active && is_retired() {
        return Some(OldState::Ending(End::seal_retired(), None));
    }
    let drift = match &decided {
        Some((grant, _)) if grant.spec_digest != binding.spec_digest => Some(Drift::Spec),
        Some((grant, live)) => grant.drift(live),
        None if phase == Phase::Active => Some(Drift::BindingOrDecision(binding.name().to_owned())),
        None => None,
    };
    match (drift, grant) {
        (Some(drift), grant) => Some(OldState::Ending(End::drift(drift), grant)),
        (None, grant) => grant.map(OldState::Granted),
    }
}

fn undecided<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    known: &Facts,
    assessment: &mut OldAssessment,
) -> Result<Grant, Stop> {
    let proposal = BindingProposal::new(transient, now, binding, known);
    if let Some(approvals) = &proposal.approvals {
        assessment.approval = Some(approvals.status.clone());
        assessment.unlocked_at = approvals.unlocked_at;
    }
    let mut passed = Passed::default();
    let decided = rules::before_grant(&proposal, &mut passed);
    let mut facts = passed.facts.into_iter();
    assessment.approved = facts.find(|fact| fact.type_ == conditions::APPROVED);
    if let (Err(Stop::Wait(failure)), Some(approvals)) = (&decided, &proposal.approvals)
        && failure.reason == approval::WAITING
    {
        assessment.waits_until = assessment.waits_until.min(approvals.status.until);
    }
    decided?;
    let grant = proposal.offer(passed.approvals)?;
    let read = known.confirmed.as_ref();
    approval::confirmed(proposal.approvals.as_ref(), read, Question::Approvals).map(|()| grant)
}

/// Compares both assessments, with all facts and without the answers to questions.
fn compare(world: &World<TransientRoleBinding>, now: Timestamp) {
    let binding = world.object.stored().unwrap();
    let facts = world.facts(now);
    let unasked = Facts {
        locks: facts.locks.clone(),
        approvals: facts.approvals.clone(),
        ..Facts::default()
    };
    for known in [facts, unasked] {
        let (controller, live) = (&world.controller, &world.live);
        let new = controller.assess(now, &binding, &known, live);
        let new = new.map(OldAssessment::from);
        let new = new.map_err(|need| old_need(&need.question, need.until));
        let old = assess(controller, now, &binding, &known, live);
        assert_eq!(new, old, "at {now}");
    }
}

/// A change of a binding or of its cluster.
type Event = fn(&mut World<TransientRoleBinding>);

const EVENTS: [Event; 21] = [
    |_| {},
    approve,
    |world| world.locks.all = vec![order::lock(&json!({"user": "bob"}))],
    |world| world.locks.all = vec![order::lock(&json!({"user": "alice"}))],
    |world| world.locks = Locks::default(),
    |world| world.locks.unreadable = 1,
    |world| world.records_fail = !world.records_fail,
    |world| world.status_fails = !world.status_fails,
    |world| world.taken = !world.taken,
    World::delete,
    |world| world.live.clear(),
    |world| {
        world.object.spec.valid_until = Some(timestamp(500).to_string());
    },
    |world| world.object.status = None,
    |world| edit(world, |live| live.object.metadata.annotations = None),
    |world| edit(world, |live| live.object.metadata.owner_references = None),
    |world| {
        edit(world, |live| {
            live.object.metadata.finalizers = Some(vec!["a/b".to_owned()]);
        });
    },
    |world| {
        edit(world, |live| {
            live.object.metadata.deletion_timestamp = Some(Time(timestamp(0)));
        });
    },
    |world| {
        edit(world, |live| {
            live.object.data["subjects"][0]["name"] = json!("mallory");
        });
    },
    |world| {
        edit(world, |live| {
            let annotations = live.object.metadata.annotations.iter_mut().flatten();
            for (_, text) in annotations {
                *text = text.replacen("\"sig\":", "\"mac\":", 1);
            }
        });
    },
    |world| world.lookup.may_bind = Ok(false),
    |world| {
        world.object.metadata.annotations = None;
    },
];

/// Adds the approval of carol, if the binding requires one.
fn approve(world: &mut World<TransientRoleBinding>) {
    let Some(config) = policy::rules(world.judgement.as_ref()) else {
        return;
    };
    let binding = world.object.stored().unwrap();
    let candidate = binding.candidate("oz-system");
    let digest = approval::digest(&candidate, &binding.spec_digest, &config);
    let approval = answer(&candidate, digest, "carol", true, 15);
    world.approvals.push(approval);
}

fn edit(world: &mut World<TransientRoleBinding>, change: impl FnOnce(&mut Live)) {
    if let Some(live) = world.live.first_mut() {
        change(live);
    }
}

/// Returns bindings before their window, with a duration, and with an approval.
fn begin(number: usize) -> World<TransientRoleBinding> {
    match number {
        0 => namespaced(|_| {}),
        1 => lasting("5m"),
        _ => {
            let mut world = lasting("5m");
            let mut judged = judgement();
            require(&mut judged, "carol", TIMEOUT);
            world.judgement = Some(judged);
            world.stamp();
            world
        }
    }
}

proptest! {
    #[test]
    fn machine_agrees_with_old_assessment(
        number in 0_usize..3,
        events in prop::collection::vec((0..EVENTS.len(), 0_i64..90, any::<bool>()), 0..16),
    ) {
        let (mut world, mut second) = (begin(number), 0);
        for (event, seconds, passes) in events {
            if world.gone {
                break;
            }
            second += seconds;
            EVENTS[event](&mut world);
            compare(&world, timestamp(second));
            if passes {
                world.pass(timestamp(second));
            }
        }
        if !world.gone {
            compare(&world, timestamp(second));
        }
    }
}
