//! Where a transient binding stands: the one place that decides. Everything else follows from it.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grant::Grant;
use super::judged;
use super::kind::{Binding, Kind, Transient};
use super::policy::Policy;
use super::terms::{Position, Terms};
use crate::access::approval;
use crate::access::fact::Fact;
use crate::access::lock::{Access, Locks};
use crate::access::stamp::{Requester, StampError};
use crate::api::{AccessRequestApproval, ApprovalStatus, EndReason, Phase, RoleReference};
use crate::controller::{Failure, Live};
use crate::lifecycle::drift;
use crate::lifecycle::revoke::still_gives_access;
use crate::lifecycle::{self, End};
use crate::validate::Violation;

/// What is known besides the object and its binding. What was not asked yet is `None`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The locks that there are, as the watch has shown them.
    pub locks: Locks,
    /// The answer to [`Question::SameStamp`]: the name of another object, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The answer to [`Question::Lookup`].
    pub lookup: Option<Lookup>,
    /// What those said who were asked to approve it, as the watch has shown it.
    pub approvals: Vec<AccessRequestApproval>,
    /// The answer to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
}

/// What must be found out before a binding can be made, in this order. What waits or is over costs no
/// reads.
#[derive(Clone, Debug)]
pub enum Question {
    /// Which other object carries the very same stamp?
    SameStamp,
    /// What is there of the role, and of the name of the binding?
    Lookup(Box<Want>),
    /// What do those say who were asked to approve it, by the API server itself?
    Approvals,
}

/// What was found when a binding was about to be made.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The rules of the role; `None` if there is no such role.
    pub role: Result<Option<Vec<PolicyRule>>, Failure>,
    /// Whether the requester may bind the role themselves, by the API server's own judgement.
    pub may_bind: Result<bool, Failure>,
    /// Whether something else has the name that the binding would have.
    pub taken: Result<bool, Failure>,
}

/// What must be looked up before a binding can be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Who asked.
    pub requester: Requester,
    /// The role.
    pub role: RoleReference,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Name of the binding.
    pub name: String,
}

/// Where an object stands.
pub type State = lifecycle::State<Grant, Grant, Opens>;

/// Where an object stands, and what is known of those who have to approve it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Where it stands.
    pub state: State,
    /// Whether those have approved it who have to, if any have.
    pub(super) approved: Option<Fact>,
    /// What others are asked, as the status says it.
    pub(super) approval: Option<ApprovalStatus>,
    /// When it stops waiting, if it does.
    pub(super) waits_until: Timestamp,
}

/// What must be found out before it can be said where an object stands.
pub(super) struct Need {
    pub(super) question: Question,
    pub(super) until: Timestamp,
}

/// It waits for its window, which opens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens(pub Timestamp);

/// Why no binding is made.
pub(super) type Otherwise = lifecycle::Otherwise<State, Question>;

/// The objects among `live` that were made for this one: what carries our decision for it, and what
/// goes with it by its owner reference anyway, or has the UID that the status names. Marks are labels,
/// which others can write too.
pub(super) fn ours(
    keys: &crate::lifecycle::seal::Keys,
    binding: &Binding<'_>,
    live: &[Live],
) -> Vec<Live> {
    let uid = binding.uid();
    let told = binding
        .status
        .and_then(|status| status.binding_uid.as_ref());
    let belongs = |live: &&Live| {
        Grant::open(keys, live, &binding.api_version, uid).is_some()
            || (!uid.is_empty() && drift::is_owned(&live.object.metadata, uid))
            || (told.is_some() && live.object.metadata.uid.as_ref() == told)
    };
    live.iter().filter(belongs).cloned().collect()
}

impl<K: Kind> Transient<K> {
    /// Where the object stands.
    pub(super) fn assess(
        &self,
        now: Timestamp,
        binding: &Binding<'_>,
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

    /// The state of an object whose binding was made or that has ended; `None` if there is nothing of the
    /// kind.
    fn after_activation(
        &self,
        now: Timestamp,
        binding: &Binding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Option<State> {
        let decided = live.iter().find_map(|live| {
            let grant = Grant::open(&self.keys, live, &binding.api_version, binding.uid())?;
            Some((grant, live))
        });
        let status = binding.status;
        let phase = status.map(|status| status.phase).unwrap_or_default();
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
        let drift = match &decided {
            Some((grant, _)) if grant.spec_digest != binding.spec_digest => {
                Some("what was asked for was changed past admission".to_owned())
            }
            Some((grant, live)) => grant.drift(live),
            None if phase == Phase::Active => Some(format!(
                "the binding {} was deleted, or the decision that it carries was changed",
                binding.name()
            )),
            None => None,
        };
        match (drift, grant) {
            (Some(drift), grant) => Some(State::Ending(End::drift(drift), grant)),
            (None, grant) => grant.map(State::Granted),
        }
    }

    /// Nothing was made yet.
    fn undecided(
        &self,
        now: Timestamp,
        binding: &Binding<'_>,
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
        let stamp = binding
            .stamp(&self.keys)
            .map_err(|error| denied(Failure::invalid(error.reason(), error.to_string())))?;
        let (requester, judgement) = (stamp.requester, stamp.judgement);
        let access = Access::bound(&requester, &terms.subjects, binding.namespace());
        known.locks.admit(&access, now).map_err(State::from)?;
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
                        .map(|judgement| judgement.policies)
                        .unwrap_or_default(),
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

    /// What is given if nothing stands against it.
    fn grant(
        &self,
        now: Timestamp,
        until: Timestamp,
        requester: Requester,
        terms: &Terms,
        binding: &Binding<'_>,
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

    /// The window is open: everything is checked again, since much may have changed meanwhile.
    fn activation(
        &self,
        grant: Grant,
        terms: &Terms,
        binding: &Binding<'_>,
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
            let message = format!("{kind} {name} does not exist; the binding is made once it does");
            return Err(State::Waiting(Failure::transient("RoleMissing", message)).into());
        };
        let danger = Policy::permits_content(&terms.role, listed, rules).map_err(denied)?;
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
                "a binding named {name} exists already and was not made for this object; it is \
                 left alone. Delete it, or choose another name for this object"
            ));
            return Err(State::Waiting(failure).into());
        }
        Ok(Grant { danger, ..grant })
    }

    /// Whether anything of it gives access still.
    pub(super) fn in_effect(&self, binding: &Binding<'_>, live: &[Live]) -> bool {
        let ours = ours(&self.keys, binding, live);
        ours.iter().any(still_gives_access)
    }
}

pub(super) fn denied(failure: Failure) -> State {
    State::Refused(Phase::Denied, failure)
}

/// Reason of conditions and records of an end.
pub(super) fn end_reason(end: &End) -> &'static str {
    end.reason.into()
}

/// One sentence for people about an end.
pub(super) fn end_message(end: &End) -> String {
    match end.reason {
        EndReason::Expired => "the window is over".to_owned(),
        EndReason::NeverActive => "the window was over before the binding could be made".to_owned(),
        EndReason::ApprovalTimedOut => end.detail().to_owned(),
        EndReason::Deleted => "revoked: the object was deleted".to_owned(),
        _ => format!("revoked: {}", end.detail()),
    }
}
