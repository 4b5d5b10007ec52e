//! The assessment of a transient binding. All other code follows its result.

use jiff::Timestamp;
use oz_api::{EndReason, Phase, Requester, labels};

use super::facts::{Assessment, Facts, Need, Opens, Otherwise, Question, State, Want, denied};
use super::grant::Grant;
use super::judged;
use super::kind::{Kind, StoredBinding, Transient};
use super::policy::Policy;
use super::terms::{Position, Terms};
use crate::access::approval;
use crate::access::lock::Access;
use crate::access::stamp::StampError;
use crate::controller::{Failure, Live};
use crate::lifecycle::drift::{self, Drift};
use crate::lifecycle::revoke::still_gives_access;
use crate::lifecycle::{self, End, seal};
use crate::validate::Violation;

/// Returns the objects of `live` that belong to this object: those with a decision of oz for it, those with its owner
/// reference, which Kubernetes deletes with it anyway, and the object with the UID in its status. Labels are no proof,
/// as other clients can write them.
pub(super) fn ours(
    keys: &crate::lifecycle::seal::Keys,
    binding: &StoredBinding<'_>,
    live: &[Live],
) -> Vec<Live> {
    let uid = binding.uid();
    let told = binding
        .status
        .and_then(|status| status.binding_uid.as_ref());
    let belongs = |live: &&Live| {
        Grant::open(keys, live, &binding.api_version, uid).is_some()
            || drift::is_owned(&live.object.metadata, uid)
            || (told.is_some() && live.object.metadata.uid.as_ref() == told)
    };
    live.iter().filter(belongs).cloned().collect()
}

impl<K: Kind> Transient<K> {
    /// Assesses an object.
    pub(super) fn assess(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Result<Assessment, Need> {
        let terms = binding.terms.as_ref();
        let waits_until = terms.map_or(now, |terms| terms.gives_up(binding.created()));
        let mut assessment = Assessment {
            state: State::Over,
            approved: None,
            approval: None,
            waits_until,
            unlocked_at: None,
        };
        if let Some(state) = self.after_activation(now, binding, known, live) {
            let granted = match &state {
                State::Granted(grant) => grant.approvals.as_slice(),
                _ => &[],
            };
            assessment.approved = (!granted.is_empty()).then(|| approval::fact(granted));
            return Ok(Assessment {
                state,
                ..assessment
            });
        }
        let decided = self.undecided(now, binding, known, &mut assessment);
        assessment.state = match decided {
            Ok(grant) => State::Grantable(Box::new(grant)),
            Err(Otherwise::State(state)) => state,
            Err(Otherwise::Need(question)) => {
                return Err(Need {
                    question,
                    until: assessment.waits_until,
                });
            }
        };
        Ok(assessment)
    }

    /// Returns the state of an object with a binding or an end; `None` for other objects.
    fn after_activation(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Option<State> {
        let decided = live.iter().find_map(|live| {
            let grant = Grant::open(&self.keys, live, &binding.api_version, binding.uid())?;
            Some((grant, live))
        });
        let status = binding.status;
        let phase = status.map_or(Phase::Pending, |status| status.phase);
        if phase.is_terminal() {
            return Some(State::Over);
        }
        let grant = decided.as_ref().map(|(grant, _)| Box::new(grant.clone()));
        let deleted = binding.metadata.deletion_timestamp.is_some();
        let until = match &grant {
            Some(grant) => Some(grant.until),
            None => status.and_then(|status| status.expires_at),
        };
        // What a lock began to end it ends, whatever became of the lock.
        let begun = status.and_then(|status| status.ending.clone());
        let locked = begun.filter(|ending| ending.reason == EndReason::Locked);
        // One that is deleted ends as such, over or not.
        let begun = deleted.then_some(End::DELETED).or(locked.map(End::from));
        if let Some(end) = lifecycle::due(now, begun, until, false) {
            return Some(State::Ending(end, grant));
        }
        let lock = grant.as_ref().and_then(|grant| {
            let subjects = &grant.subjects;
            let access = Access::bound(&grant.requester, subjects, binding.namespace());
            known.locks.against(&access, now)
        });
        if let Some(lock) = lock {
            return Some(State::Ending(lock.end(), grant));
        }
        let is_retired = || {
            let mut found = live.iter().map(|live| &live.object.metadata);
            found.any(|metadata| seal::is_retired_on(metadata, labels::GRANT))
        };
        if grant.is_none() && phase == Phase::Active && is_retired() {
            return Some(State::Ending(End::seal_retired(), None));
        }
        let drift = match &decided {
            Some((grant, _)) if grant.spec_digest != binding.spec_digest => Some(Drift::Spec),
            Some((grant, live)) => grant.drift(live),
            None if phase == Phase::Active => {
                Some(Drift::BindingOrDecision(binding.name().to_owned()))
            }
            None => None,
        };
        match (drift, grant) {
            (Some(drift), grant) => Some(State::Ending(End::drift(drift), grant)),
            (None, grant) => grant.map(State::Granted),
        }
    }

    /// Assesses an object without a binding.
    fn undecided(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        assessment: &mut Assessment,
    ) -> Result<Grant, Otherwise> {
        let failed = |message| State::Refused(Phase::Failed, Failure::invalid("Invalid", message));
        let terms = binding
            .terms
            .as_ref()
            .map_err(|violations| failed(Violation::list(violations)))?;
        let position = terms.position(now, binding.created());
        if position == Position::After {
            return Err(State::Ending(End::NEVER_ACTIVE, None).into());
        }
        if let Some(why) = terms.never() {
            return Err(failed(format!("validUntil {why}")).into());
        }
        let stamp = binding.stamp(&self.keys).map_err(|error| match error {
            StampError::Unverified(_) => State::Waiting(error.failure()),
            error => denied(error.failure()),
        })?;
        let (requester, judgement) = (stamp.requester, stamp.judgement);
        let access = Access::bound(&requester, &terms.subjects, binding.namespace());
        known.locks.admit(&access, now).map_err(State::from)?;
        self.may_wait(now, binding, terms, &requester, known)?;
        let asking = judged::Asking {
            requester: &requester,
            judgement: judgement.as_ref(),
            terms,
        };
        let approvals = self.approvals(now, binding, &asking, known);
        let approved = judged::settled(binding, &asking, approvals.as_ref(), assessment)?;
        match position {
            Position::Before(opens) => Err(State::Special(Opens(opens)).into()),
            Position::Inside(until) => {
                let grant = Grant {
                    until: judged::limit(until, now, judgement.as_ref()),
                    approvals: approved,
                    policies: judgement
                        .into_iter()
                        .flat_map(|judgement| judgement.policies)
                        .collect(),
                    ..self.grant(now, until, requester, terms, binding)
                };
                let grant = self.activation(grant, terms, binding, known)?;
                let read = known.confirmed.as_ref();
                approval::confirmed(approvals.as_ref(), read, Question::Approvals)?;
                Ok(grant)
            }
            Position::After => Err(State::Ending(End::NEVER_ACTIVE, None).into()),
        }
    }

    /// Checks whether its window lies too far ahead, and whether too many of its requester's wait already. The oldest may,
    /// whichever was admitted first.
    fn may_wait(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        terms: &Terms,
        requester: &Requester,
        known: &Facts,
    ) -> Result<(), Otherwise> {
        let Some(place) = binding.waiting(now) else {
            return Ok(());
        };
        let lead = self.policy.permits_lead(terms, binding.created());
        lead.map_err(denied)?;
        let Some(waiting) = &known.waiting else {
            return Err(Otherwise::Need(Question::Waiting(requester.clone())));
        };
        let older = waiting.iter().filter(|other| **other < place).count();
        let permitted = self.policy.permits_waiting(&requester.user, older);
        permitted.map_err(denied)?;
        Ok(())
    }

    /// Creates the grant, before the checks.
    fn grant(
        &self,
        now: Timestamp,
        until: Timestamp,
        requester: Requester,
        terms: &Terms,
        binding: &StoredBinding<'_>,
    ) -> Grant {
        Grant {
            api_version: binding.api_version.clone(),
            request: binding.reference(),
            mark: binding.mark.to_owned(),
            requester,
            role: terms.role_ref(),
            subjects: terms.subjects.clone(),
            spec_digest: binding.spec_digest.clone(),
            activated_at: now,
            until,
            reason: terms.reason.clone(),
            danger: None,
            approvals: Vec::new(),
            policies: Vec::new(),
        }
    }

    /// Repeats all checks when the window opens, as objects may have changed since admission.
    fn activation(
        &self,
        grant: Grant,
        terms: &Terms,
        binding: &StoredBinding<'_>,
        known: &Facts,
    ) -> Result<Grant, Otherwise> {
        let namespace = binding.namespace();
        let permitted = self.policy.permits(terms, namespace, binding.created());
        let listed = permitted.map_err(denied)?;
        match &known.same_stamp {
            None => return Err(Otherwise::Need(Question::SameStamp)),
            Some(None) => {}
            Some(Some(other)) => {
                let error = StampError::Replayed(other.clone());
                return Err(denied(Failure::invalid(error.reason(), error.to_string())).into());
            }
        }
        let Some(found) = &known.lookup else {
            return Err(Otherwise::Need(Question::Lookup(Box::new(Want {
                requester: grant.requester,
                role: terms.role.clone(),
                namespace: namespace.map(ToOwned::to_owned),
                name: binding.name().to_owned(),
            }))));
        };
        let (kind, name) = (terms.role.kind, &terms.role.name);
        let waiting = |failure: &Failure| State::Waiting(failure.clone());
        let Some(rules) = found.role.as_ref().map_err(waiting)? else {
            let message = format!(
                "{kind} {name} does not exist; the binding is created when it \
                exists"
            );
            return Err(State::Waiting(Failure::transient("RoleMissing", message)).into());
        };
        let danger = Policy::permits_content(&terms.role, listed, rules, namespace);
        let danger = danger.map_err(denied)?;
        if !*found.may_bind.as_ref().map_err(waiting)? {
            let message = format!(
                "{} may not bind {kind} {name} themselves (verb bind on the role), and so not \
                 through oz either",
                grant.requester.user
            );
            return Err(denied(Failure::invalid("MayNotBind", message)).into());
        }
        if *found.taken.as_ref().map_err(waiting)? {
            let name = binding.name();
            let failure = Failure::conflict(format!(
                "a binding named {name} exists already and was not created for this object; oz \
                 does not change it. Delete it, or choose another name for this object"
            ));
            return Err(State::Waiting(failure).into());
        }
        Ok(Grant { danger, ..grant })
    }

    /// Checks whether an object still gives access.
    pub(super) fn in_effect(&self, binding: &StoredBinding<'_>, live: &[Live]) -> bool {
        let ours = ours(&self.keys, binding, live);
        ours.iter().any(still_gives_access)
    }
}

/// Returns the reason in conditions and audit records of an end.
pub(super) fn end_reason(end: &End) -> &'static str {
    end.reason.into()
}

/// Returns the message for users about an end.
pub(super) fn end_message(end: &End) -> String {
    match end.reason {
        EndReason::Expired => "the window has ended".to_owned(),
        EndReason::NeverActive => "the window ended before the binding could be created".to_owned(),
        EndReason::ApprovalTimedOut => end.detail().to_owned(),
        EndReason::Deleted => "revoked: the object was deleted".to_owned(),
        _ => format!("revoked: {}", end.detail()),
    }
}
