//! The status after a plan was executed, completely or in part.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::{BindingStatus, Phase, conditions};

use super::assess::{end_message, end_reason, ours};
use super::facts::{Assessment, ESTABLISHED, Opens, State};
use super::grant::Grant;
use super::kind::{Kind, StoredBinding, Transient};
use super::policy::ROLE_TOO_POWERFUL;
use crate::access::fact::Fact;
use crate::access::ticket;
use crate::controller::{Failure, FailureClass, Outcome};

/// The binding exists, and its window is open.
pub(super) const READY: &str = "Ready";
/// Another object has the name.
pub(super) const NAME_CONFLICT: &str = "NameConflict";

/// Whether the role cannot be used to escalate privileges. Set only if it can; for information.
pub(super) const ROLE_HARMLESS: &str = "RoleHarmless";

/// The values of the conditions.
struct Facts {
    ready: bool,
    effective: bool,
    reason: String,
    message: String,
    danger: Option<String>,
}

impl<K: Kind> Transient<K> {
    pub(super) fn report(
        &self,
        now: Timestamp,
        object: &K,
        assessment: &Assessment,
        outcome: &Outcome,
    ) -> BindingStatus {
        let state = &assessment.state;
        let current = object.status().cloned().unwrap_or_default();
        let binding = match (object.stored(), state) {
            (Err(_), _) | (_, State::Over) => return current,
            (Ok(binding), _) => binding,
        };
        let failure = outcome.failure.as_ref();
        let effective = self.in_effect(&binding, &outcome.live);
        let fact = |reason: &str, message: String| Facts {
            ready: false,
            effective,
            reason: reason.to_owned(),
            message,
            danger: None,
        };
        let user = || Some(binding.requester(&self.keys).ok()?.user);
        let mut status = BindingStatus {
            approval: assessment.shown(failure, current.approval.as_ref()),
            requester: current.requester.clone().or_else(user),
            next_transition_time: None,
            ..current
        };
        let facts = match state {
            State::Over => return status,
            // What was to be made is there.
            State::Granted(grant) | State::Grantable(grant)
                if failure.is_none() || matches!(state, State::Granted(_)) =>
            {
                describe(&mut status, grant);
                let ours = ours(&self.keys, &binding, &outcome.live);
                let made = ours
                    .first()
                    .and_then(|live| live.object.metadata.uid.clone());
                status.binding_uid = made.or(status.binding_uid);
                Facts {
                    ready: effective,
                    danger: grant.danger.clone(),
                    ..fact("Active", format!("in effect until {}", grant.until))
                }
            }
            State::Special(Opens(opens)) => {
                status.next_transition_time = Some(*opens);
                fact("NotYetValid", format!("in effect from {opens}"))
            }
            State::Granted(_) | State::Grantable(_) | State::Waiting(_) => match failure {
                Some(failure) => fact(failure.reason, failure.message.clone()),
                None => fact("Waiting", "the binding is being created".to_owned()),
            },
            State::Refused(phase, refusal) => {
                if failure.is_none() {
                    status.phase = *phase;
                }
                fact(refusal.reason, refusal.message.clone())
            }
            State::Ending(end, grant) => {
                if let Some(grant) = grant {
                    describe(&mut status, grant);
                }
                status.next_transition_time = None;
                let mut ending = end.ending(status.ending.as_ref(), now);
                ending.recorded |= failure.is_none();
                status.ending = Some(ending);
                let said = end_message(end);
                // Over only when nothing gives access any more and that is on record.
                match failure {
                    None if !effective => {
                        status.phase = end.phase();
                        fact(end_reason(end), said)
                    }
                    None => fact("Ending", said),
                    Some(failure) => fact("Ending", format!("{said}; {failure}")),
                }
            }
        };
        let conflict = failure.filter(|failure| failure.class == FailureClass::Conflict);
        conditions_of::<K>(&mut status, &binding, now, facts, conflict);
        let mut established = assessment.facts.clone();
        ticket::limit(&mut established, failure);
        set_facts(&mut status, &binding, now, &established);
        status
    }
}

fn describe(status: &mut BindingStatus, grant: &Grant) {
    status.phase = Phase::Active;
    status.requester = Some(grant.requester.user.clone());
    status.activated_at = Some(grant.activated_at);
    status.expires_at = Some(grant.until);
    status.next_transition_time = Some(grant.until);
    status.binding_name = Some(grant.request.name.clone());
}

/// Sets the established conditions. A ticket check that was pending before, and of which this pass has no result, has
/// accepted the ticket since.
fn set_facts(
    status: &mut BindingStatus,
    binding: &StoredBinding<'_>,
    now: Timestamp,
    facts: &[Fact],
) {
    let ticket = conditions::TICKET_ACCEPTED;
    if facts.iter().all(|fact| fact.type_ != ticket) {
        let is_stale = |it: &Condition| it.type_ == ticket && it.status == "False";
        status.conditions.retain(|it| !is_stale(it));
    }
    for fact in facts {
        let generation = binding.metadata.generation;
        fact.clone().set(&mut status.conditions, generation, now);
    }
}

/// Sets each type of condition once, and removes conditions of other clients, such as the log of the published
/// controller.
fn conditions_of<K: Kind>(
    status: &mut BindingStatus,
    binding: &StoredBinding<'_>,
    now: Timestamp,
    facts: Facts,
    conflict: Option<&Failure>,
) {
    let generation = binding.metadata.generation;
    let mut seen = std::collections::BTreeSet::new();
    status.conditions.retain(|condition| {
        let type_ = condition.type_.as_str();
        let own = [READY, K::EFFECTIVE, NAME_CONFLICT, ROLE_HARMLESS];
        let is_known = own.contains(&type_) || ESTABLISHED.contains(&type_);
        is_known && seen.insert(condition.type_.clone())
    });
    let was_conflict = conditions::find(&status.conditions, NAME_CONFLICT).is_some();
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        conditions::set(
            &mut status.conditions,
            type_,
            holds,
            reason,
            message,
            generation,
            now,
        );
    };
    let effective = if facts.effective {
        "in effect"
    } else {
        "not in effect"
    };
    set(
        K::EFFECTIVE,
        facts.effective,
        &facts.reason,
        effective.to_owned(),
    );
    set(READY, facts.ready, &facts.reason, facts.message);
    if let Some(danger) = facts.danger {
        set(ROLE_HARMLESS, false, ROLE_TOO_POWERFUL, danger);
    }
    match conflict {
        Some(failure) => set(NAME_CONFLICT, true, failure.reason, failure.message.clone()),
        None if was_conflict => {
            let message = "the name is not in use".to_owned();
            set(NAME_CONFLICT, false, "NameAvailable", message);
        }
        None => {}
    }
    status.observed_generation = generation;
}
