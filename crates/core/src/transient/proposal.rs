//! A binding without a grant, as the rules read it.

use jiff::Timestamp;
use oz_api::{Phase, Requester};

use super::facts::{Facts, Opens, Question, Want};
use super::grant::Grant;
use super::judged::limit;
use super::kind::{Kind, StoredBinding, Transient};
use super::policy::{Policy, may_not_bind, role_missing};
use super::roles::Listed;
use super::terms::{Position, Terms};
use crate::access::approval::Approvals;
use crate::access::denial::Denial;
use crate::access::emergency;
use crate::access::fact::Fact;
use crate::access::kind::ReviewLimit;
use crate::access::lock::Access;
use crate::access::policy::Judgement;
use crate::access::rules::{Known, Passed, Proposal};
use crate::access::stamp::{Stamp, StampError};
use crate::access::ticket::{self, Ticket};
use crate::controller::Failure;
use crate::lifecycle::{self, End};
use crate::tickets::Tickets;
use crate::validate::Violation;

/// The reason why a rule does not hold for a binding.
pub(super) type Stop = lifecycle::Stop<Opens, Question>;

/// A binding without a grant.
pub(super) struct BindingProposal<'a> {
    pub(super) now: Timestamp,
    pub(super) binding: &'a StoredBinding<'a>,
    pub(super) known: &'a Facts,
    pub(super) policy: &'a Policy,
    pub(super) stamp: Result<Stamp, StampError>,
    pub(super) approvals: Option<Approvals>,
}

impl<'a> BindingProposal<'a> {
    pub(super) fn new<K: Kind>(
        transient: &'a Transient<K>,
        now: Timestamp,
        binding: &'a StoredBinding<'a>,
        known: &'a Facts,
    ) -> Self {
        let stamp = binding.stamp(&transient.keys);
        let approvals = stamp
            .as_ref()
            .ok()
            .and_then(|stamp| transient.approvals(now, binding, stamp, known));
        Self {
            now,
            binding,
            known,
            policy: &transient.policy,
            stamp,
            approvals,
        }
    }

    /// Returns the terms, or the state of a binding with invalid fields.
    pub(super) fn terms(&self) -> Result<&'a Terms, Stop> {
        let terms = self.binding.terms.as_ref();
        terms.map_err(|violations| failed(Violation::list(violations)))
    }

    /// Returns the position of now and the window, which has not ended.
    pub(super) fn position(&self) -> Result<Position, Stop> {
        match self.terms()?.position(self.now, self.binding.created()) {
            Position::After => Err(Stop::End(End::NEVER_ACTIVE)),
            position => Ok(position),
        }
    }
}

impl BindingProposal<'_> {
    /// Returns the grant of a binding for which all rules hold. It checks the role again when the window opens, as the role
    /// and the rights of the requester may have changed since admission.
    pub(super) fn offer(&self, passed: Passed) -> Result<Grant, Stop> {
        let stamp = self.stamp.as_ref();
        let stamp = stamp.map_err(|error| Stop::Wait(error.failure()))?;
        let terms = self.terms()?;
        let binding = self.binding;
        let Position::Inside(until) = self.position()? else {
            return Err(Stop::End(End::NEVER_ACTIVE));
        };
        let namespace = binding.namespace();
        let permitted = self.policy.permits(terms, namespace, binding.created());
        let danger = self.bindable(terms, permitted.map_err(denied)?, &stamp.requester)?;
        let judgement = stamp.judgement.as_ref();
        Ok(Grant {
            api_version: binding.api_version.clone(),
            request: binding.reference(),
            mark: binding.mark.to_owned(),
            requester: stamp.requester.clone(),
            role: terms.role_ref(),
            subjects: terms.subjects.clone(),
            spec_digest: binding.spec_digest.clone(),
            activated_at: self.now,
            until: limit(until, self.now, judgement, passed.emergency.is_some()),
            reason: terms.reason.clone(),
            danger,
            approvals: passed.approvals,
            ticket: passed.ticket,
            emergency: passed.emergency.map(|terms| terms.granted(self.now)),
            policies: judgement
                .into_iter()
                .flat_map(|judgement| judgement.policies.clone())
                .collect(),
        })
    }

    /// Checks whether the role exists, whether the requester may bind it, and whether the name of the binding is free.
    /// Returns the warning about a role that can be used to escalate privileges.
    fn bindable(
        &self,
        terms: &Terms,
        listed: Listed,
        requester: &Requester,
    ) -> Result<Option<String>, Stop> {
        let namespace = self.binding.namespace();
        let Some(found) = &self.known.lookup else {
            return Err(Stop::Need(Question::Lookup(Box::new(Want {
                requester: requester.clone(),
                role: terms.role.clone(),
                namespace: namespace.map(ToOwned::to_owned),
                name: self.binding.name().to_owned(),
            }))));
        };
        let waiting = |failure: &Failure| Stop::Wait(failure.clone());
        let Some(rules) = found.role.as_ref().map_err(waiting)? else {
            let message = role_missing(&terms.role);
            return Err(Stop::Wait(Failure::transient("RoleMissing", message)));
        };
        let danger = Policy::permits_content(&terms.role, listed, rules, namespace);
        let danger = danger.map_err(denied)?;
        if !*found.may_bind.as_ref().map_err(waiting)? {
            return Err(denied(may_not_bind(&requester.user, &terms.role)));
        }
        if *found.taken.as_ref().map_err(waiting)? {
            let name = self.binding.name();
            let failure = Failure::conflict(format!(
                "a binding named {name} exists already and was not created for this object; oz \
                 does not change it. Delete it, or choose another name for this object"
            ));
            return Err(Stop::Wait(failure));
        }
        Ok(danger)
    }
}

impl Proposal for BindingProposal<'_> {
    type Question = Question;
    type Special = Opens;

    fn ask_same_stamp() -> Question {
        Question::SameStamp
    }

    fn ask_reviews(limit: ReviewLimit) -> Option<Question> {
        Some(Question::Emergencies(Box::new(limit)))
    }

    fn known(&self) -> Known<'_> {
        Known {
            now: self.now,
            created: self.binding.created(),
            locks: &self.known.locks,
            same_stamp: self.known.same_stamp.as_ref(),
            unreviewed: self.known.unreviewed.as_ref(),
        }
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn access<'a>(&'a self, requester: &'a Requester) -> Access<'a> {
        let namespace = self.binding.namespace();
        match &self.binding.terms {
            Ok(terms) => terms.access(requester, namespace),
            Err(_) => Access::bound(requester, &[], namespace),
        }
    }

    fn spec(&self, _: &mut Vec<Fact>) -> Result<(), Stop> {
        self.position()?;
        match self.terms()?.never() {
            Some(why) => Err(failed(format!("validUntil {why}"))),
            None => Ok(()),
        }
    }

    fn judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        let stamp = self.stamp.as_ref().map_err(StampError::failure)?;
        self.binding.permitted(judgement, &stamp.requester)
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Failure> {
        let stamp = self.stamp.as_ref().map_err(StampError::failure)?;
        let terms = self
            .binding
            .emergency(stamp.judgement.as_ref(), &stamp.requester);
        terms.map_err(|denial| Failure::invalid(denial.reason, denial.message))
    }

    fn ticket(&self, judgement: Option<&Judgement>) -> Option<(Ticket, &Tickets)> {
        let ticket = ticket::terms_by(self.binding.ask(), judgement, [])?;
        Some((ticket, &self.known.tickets))
    }

    /// Checks whether its window lies too far ahead, and whether too many of its requester's wait already. The oldest
    /// may, whichever was admitted first.
    fn capacity(&self, requester: &Requester) -> Result<(), Stop> {
        let Some(place) = self.binding.waiting(self.now) else {
            return Ok(());
        };
        let lead = self
            .policy
            .permits_lead(self.terms()?, self.binding.created());
        lead.map_err(denied)?;
        let Some(waiting) = &self.known.waiting else {
            return Err(Stop::Need(Question::Waiting(requester.clone())));
        };
        let older = waiting.iter().filter(|other| **other < place).count();
        let permitted = self.policy.permits_waiting(&requester.user, older);
        permitted.map_err(denied)
    }

    fn approvals(&self) -> Option<&Approvals> {
        self.approvals.as_ref()
    }

    fn window(&self, _: &mut Passed) -> Result<(), Stop> {
        match self.position()? {
            Position::Before(opens) => Err(Stop::Special(Opens(opens))),
            Position::Inside(_) | Position::After => Ok(()),
        }
    }
}

/// Returns the final state of a binding that cannot take effect.
fn failed(message: String) -> Stop {
    Stop::Refuse(Phase::Failed, Failure::invalid("Invalid", message))
}

/// Returns the final state of a binding that a limit of the administrator or a right forbids.
fn denied(failure: Failure) -> Stop {
    Stop::Refuse(Phase::Denied, failure)
}
