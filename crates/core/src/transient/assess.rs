//! Where a transient binding stands: the one place that decides. Everything else follows from it.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grant::Grant;
use super::kind::{Binding, Kind, Transient};
use super::policy::Policy;
use super::terms::{Position, Terms};
use crate::access::objects;
use crate::access::stamp::{self, Requester, StampError};
use crate::api::{EndReason, Phase, RoleReference};
use crate::controller::{Failure, Live};
use crate::lifecycle::End;
use crate::validate::Violation;

/// What the plan needs besides the object and its binding.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Name of another object that carries the same stamp.
    pub same_stamp: Option<String>,
    /// What was found when a binding was about to be made; `None` if nobody looked.
    pub sighting: Option<Sighting>,
}

/// What was found when a binding was about to be made.
#[derive(Clone, Debug)]
pub struct Sighting {
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
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Nothing more happens: its status says so.
    Over,
    /// It must end now.
    Ending(End, Option<Box<Grant>>),
    /// Its binding is as it should be.
    Active(Box<Grant>),
    /// Its binding may be made now.
    Activating(Box<Grant>),
    /// It waits for its window, which opens then.
    Pending(Timestamp),
    /// It is refused for good, in this phase.
    Refused(Phase, Failure),
    /// It cannot be made yet.
    Waiting(Failure),
    /// This must be looked up to tell.
    Wants(Box<Want>),
}

/// The objects among `live` that were made for this one: what carries our decision for it, and what
/// goes with it by its owner reference anyway, or has the UID that the status names. Marks are labels,
/// which others can write too.
pub(super) fn ours(
    keys: &crate::access::seal::Keys,
    binding: &Binding<'_>,
    live: &[Live],
) -> Vec<Live> {
    let uid = binding.uid();
    let told = binding
        .status
        .and_then(|status| status.binding_uid.as_ref());
    let belongs = |live: &&Live| {
        let mut owners = live.object.metadata.owner_references.iter().flatten();
        Grant::open(keys, live, &binding.api_version, uid).is_some()
            || owners.any(|owner| owner.uid == uid && !uid.is_empty())
            || (told.is_some() && live.object.metadata.uid.as_ref() == told)
    };
    live.iter().filter(belongs).cloned().collect()
}

impl<K: Kind> Transient<K> {
    /// What must be looked up before the plan can be made; `None` when the answer would change
    /// nothing, so that what waits or is over costs no reads.
    #[must_use]
    pub fn wants(
        &self,
        now: Timestamp,
        object: &K,
        observed: &Observed,
        live: &[Live],
    ) -> Option<Want> {
        match self.assess(now, &object.view(), observed, live) {
            State::Wants(want) => Some(*want),
            _ => None,
        }
    }

    pub(super) fn assess(
        &self,
        now: Timestamp,
        binding: &Binding<'_>,
        observed: &Observed,
        live: &[Live],
    ) -> State {
        let decided = live.iter().find_map(|live| {
            let grant = Grant::open(&self.keys, live, &binding.api_version, binding.uid())?;
            Some((grant, live))
        });
        let status = binding.status;
        let phase = status.map(|status| status.phase).unwrap_or_default();
        if phase.is_terminal() {
            return State::Over;
        }
        let grant = decided.as_ref().map(|(grant, _)| Box::new(grant.clone()));
        if binding.metadata.deletion_timestamp.is_some() {
            return State::Ending(End::DELETED, grant);
        }
        let until = match &grant {
            Some(grant) => Some(grant.until),
            None => status.and_then(|status| status.expires_at),
        };
        if until.is_some_and(|until| now >= until) {
            return State::Ending(End::EXPIRED, grant);
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
            (Some(drift), grant) => State::Ending(End::drift(drift), grant),
            (None, Some(grant)) => State::Active(grant),
            (None, None) => self.undecided(now, binding, observed),
        }
    }

    /// Nothing was made yet.
    fn undecided(&self, now: Timestamp, binding: &Binding<'_>, observed: &Observed) -> State {
        let terms = match &binding.terms {
            Ok(terms) => terms,
            Err(violations) => {
                return State::Refused(
                    Phase::Failed,
                    Failure::invalid("Invalid", Violation::list(violations)),
                );
            }
        };
        let until = match (terms.position(now, binding.created()), terms.never()) {
            (Position::After, _) => return State::Ending(End::NEVER_ACTIVE, None),
            (_, Some(why)) => {
                let message = format!("validUntil {why}");
                return State::Refused(Phase::Failed, Failure::invalid("Invalid", message));
            }
            (position, None) => match (self.requester(binding), position) {
                (Err(refused), _) => return refused,
                (Ok(_), Position::Before(opens)) => return State::Pending(opens),
                (Ok(requester), Position::Inside(until)) => (requester, until),
                (Ok(_), Position::After) => return State::Ending(End::NEVER_ACTIVE, None),
            },
        };
        let (requester, until) = until;
        self.activation(now, until, requester, terms, binding, observed)
    }

    fn requester(&self, binding: &Binding<'_>) -> Result<Requester, State> {
        stamp::verify(
            &self.keys,
            &binding.kind,
            binding.metadata,
            &binding.spec_digest,
        )
        .map_err(|error| denied(Failure::invalid(error.reason(), error.to_string())))
    }

    /// The window is open: everything is checked again, since much may have changed meanwhile.
    fn activation(
        &self,
        now: Timestamp,
        until: Timestamp,
        requester: Requester,
        terms: &Terms,
        binding: &Binding<'_>,
        observed: &Observed,
    ) -> State {
        let namespace = binding.namespace();
        let listed = match self.policy.permits(terms, namespace, binding.created()) {
            Ok(listed) => listed,
            Err(failure) => return denied(failure),
        };
        if let Some(other) = &observed.same_stamp {
            let error = StampError::Replayed(other.clone());
            return denied(Failure::invalid(error.reason(), error.to_string()));
        }
        let Some(sighting) = &observed.sighting else {
            return State::Wants(Box::new(Want {
                requester,
                role: terms.role.clone(),
                namespace: namespace.map(ToOwned::to_owned),
                name: binding.name().to_owned(),
            }));
        };
        let (kind, name) = (terms.role.kind, &terms.role.name);
        let rules = match &sighting.role {
            Ok(Some(rules)) => rules,
            Ok(None) => {
                let message =
                    format!("{kind} {name} does not exist; the binding is made once it does");
                return State::Waiting(Failure::transient("RoleMissing", message));
            }
            Err(failure) => return State::Waiting(failure.clone()),
        };
        let danger = match Policy::permits_content(&terms.role, listed, rules) {
            Ok(danger) => danger,
            Err(failure) => return denied(failure),
        };
        match &sighting.may_bind {
            Ok(true) => {}
            Ok(false) => {
                let message = format!(
                    "{} may not bind {kind} {name} themselves (verb bind on the role), and so not \
                     through oz either",
                    requester.user
                );
                return denied(Failure::invalid("MayNotBind", message));
            }
            Err(failure) => return State::Waiting(failure.clone()),
        }
        match &sighting.taken {
            Ok(false) => {}
            Ok(true) => {
                let name = binding.name();
                return State::Waiting(Failure::conflict(format!(
                    "a binding named {name} exists already and was not made for this object; it is \
                     left alone. Delete it, or choose another name for this object"
                )));
            }
            Err(failure) => return State::Waiting(failure.clone()),
        }
        State::Activating(Box::new(Grant {
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
            danger,
        }))
    }

    /// Whether anything of it gives access still.
    pub(super) fn in_effect(&self, binding: &Binding<'_>, live: &[Live]) -> bool {
        let ours = ours(&self.keys, binding, live);
        ours.iter().any(objects::still_gives_access)
    }
}

fn denied(failure: Failure) -> State {
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
        EndReason::Deleted => "revoked: the object was deleted".to_owned(),
        _ => format!("revoked: {}", end.detail()),
    }
}

/// The obstacle by which a plan tells the status of an end that cannot be seen any more once
/// the plan is carried out.
pub(super) fn obstacle(end: &End) -> Option<Failure> {
    end.is_drift()
        .then(|| Failure::invalid(end_reason(end), end.detail()))
}

/// The end that a plan told of.
pub(super) fn told(failure: &Failure) -> Option<End> {
    let drift: &str = EndReason::DriftDetected.into();
    (failure.reason == drift).then(|| End::drift(failure.message.clone()))
}
