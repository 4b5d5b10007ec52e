//! Calling: the response of the function to a parent, its children and the related objects.

use jiff::SignedDuration;
use oz_core::controller::Live;
use oz_core::lifecycle::window::after;

use super::claim::Claimed;
use super::composite::Composite;
use super::facts::{Parent, Question, Stop};
use crate::function::{Called, Function};
use crate::protocol;
use crate::related::{Related, Rule};

/// Interval until the next pass of a parent after a change of the policy, without another event.
const POLICY_CHANGED: SignedDuration = SignedDuration::from_secs(5);

impl<'a> Parent<'a> {
    /// Returns the expired children with which the function is called once.
    pub(super) fn expired_before(&self) -> &'a [Live] {
        match &self.facts.expired {
            Some(expired) if !self.owner.is_finalizing() => expired,
            _ => &[],
        }
    }
}

impl Composite {
    /// Returns the response of the function.
    pub(super) fn call<'a>(
        &self,
        parent: &Parent<'a>,
        claimed: &Claimed,
    ) -> Result<&'a Called, Stop> {
        let related = self.related(parent)?;
        match &parent.facts.called {
            None => Err(self.request(parent, claimed, related).into()),
            Some(Err(refused)) => Err(refused.clone().into()),
            Some(Ok(called)) if self.is_of_another_policy(called) => {
                Err(Stop::Wait(after(parent.now, POLICY_CHANGED), None))
            }
            Some(Ok(called)) => Ok(called),
        }
    }

    /// Returns the related objects of the function.
    fn related<'a>(&self, parent: &Parent<'a>) -> Result<&'a [Related], Stop> {
        let object = parent.owner.object;
        let own = object.metadata.namespace.as_ref();
        let mut rules: Vec<Rule> = self.declared.related.clone();
        for rule in &mut rules {
            rule.namespace = rule.namespace.take().or_else(|| own.cloned());
        }
        if self.declared.customize.is_some() {
            match &parent.facts.rules {
                None => {
                    let request = protocol::customizing(&self.declared, &self.family, object);
                    return Err(Question::Customize(request).into());
                }
                Some(Err(refused)) => return Err(refused.clone().into()),
                Some(Ok(named)) => rules.extend(named.iter().cloned()),
            }
        }
        match &parent.facts.related {
            _ if rules.is_empty() => Ok(&[]),
            None => Err(Question::Related(rules).into()),
            Some(Err(failure)) => Err(failure.clone().into()),
            Some(Ok(related)) => Ok(related),
        }
    }

    /// Returns the call of the function.
    fn request(&self, parent: &Parent<'_>, claimed: &Claimed, related: &[Related]) -> Question {
        let (function, call) = match &self.declared.finalize {
            Some(finalize) if parent.owner.is_finalizing() => (Function::Finalize, finalize),
            _ => (Function::Sync, &self.declared.sync),
        };
        // Another object may have the name of one that expired.
        let is_gone = |one: &&Live| !claimed.children().any(|live| live.key() == one.key());
        let expired = parent.expired_before().iter().filter(is_gone);
        let children: Vec<Live> = claimed.children().chain(expired).cloned().collect();
        let request = protocol::request(
            &self.declared,
            &self.family,
            call.version,
            parent.owner.object,
            &children,
            related,
            function == Function::Finalize,
        );
        Question::Call(function, request)
    }

    /// Checks whether the policy has changed since the mode was decided: the number of its deletions is unknown, and
    /// another controller is about to replace this one.
    fn is_of_another_policy(&self, called: &Called) -> bool {
        let guards = self.declared.most_deletions.is_some();
        guards && self.policy.is_some() && self.policy != called.policy
    }
}
