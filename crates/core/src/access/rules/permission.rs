//! The rules about what a template and the access policies permit.

use oz_api::conditions::{self, message};

use super::stop::{judgement, refused, requester};
use super::{Held, HeldFacts, Passed, Proposal, Rule, StopOf};
use crate::access::denial::Denial;
use crate::access::fact::Fact;
use crate::lifecycle::{End, Stop};

/// The template exists.
pub(super) struct Template;

impl<P: Proposal> Rule<P> for Template {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let type_ = conditions::TARGET_TEMPLATE_EXISTS;
        match proposal.template() {
            None => Ok(()),
            Some(Ok(())) => {
                passed
                    .facts
                    .push(Fact::holds(type_, message::TEMPLATE_FOUND));
                Ok(())
            }
            Some(Err(stop)) => {
                if let Stop::Wait(failure) | Stop::Refuse(_, failure) = &stop {
                    let message = failure.message.clone();
                    let failed = Fact::fails(type_, failure.reason, message);
                    passed.facts.push(failed);
                }
                Err(stop)
            }
        }
    }

    fn while_granted(&self, held: &dyn Held, facts: &HeldFacts<'_>) -> Option<End> {
        let (decided, template) = held.template_digest().zip(facts.template)?;
        (template.digest() != decided).then_some(End::TEMPLATE_CHANGED)
    }
}

/// The template lets the requester have the access.
pub(super) struct Permission;

impl<P: Proposal> Rule<P> for Permission {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let requester = requester(proposal, passed)?;
        permitted(proposal.permits(requester), passed)
    }
}

/// The access policies permit the access.
pub(super) struct AccessPolicies;

impl<P: Proposal> Rule<P> for AccessPolicies {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        permitted(proposal.judged(judgement(proposal)), passed)
    }
}

/// The gate exists, if sessions go through it.
pub(super) struct Gate;

impl<P: Proposal> Rule<P> for Gate {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        passed.gate = permitted(proposal.gate(), passed)?;
        Ok(())
    }
}

/// The spec of the template is valid.
pub(super) struct TemplateTerms;

impl<P: Proposal> Rule<P> for TemplateTerms {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        proposal.template_terms(&mut passed.facts)
    }
}

fn permitted<T, S, Q>(result: Result<T, Denial>, passed: &mut Passed) -> Result<T, Stop<S, Q>> {
    result.map_err(|denial| refused(passed, denial.reason, denial.message))
}
