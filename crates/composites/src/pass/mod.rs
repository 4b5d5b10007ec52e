//! The pass of a composite over one parent. Expired objects are deleted first, without a call of the function
//! (`expire`, `parent_end`). The stages follow: the parent claims its children (`claim`), the function is called
//! (`call`), its response is evaluated (`evaluate`) and applied (`apply`), and the status and the withheld changes are
//! reported (`report`). Claiming, evaluating and applying know an owner of children, and no declaration.

mod apply;
mod call;
mod changes;
mod claim;
mod composite;
mod converge;
mod evaluate;
mod expire;
mod facts;
mod parent_end;
mod report;
mod schedule;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject, Selector};
use oz_core::controller::{
    Controller, Decision, Failure, Live, Outcome, Plan, Step, Transition, Verdict,
};
use serde_json::Value;

pub use self::composite::Composite;
pub use self::facts::{Facts, Question, Refused};
pub use self::report::Pass;

use self::apply::Application;
use self::claim::{Claimed, claim};
use self::evaluate::evaluate;
use self::facts::{Parent, Stop};
use self::parent_end::wait_for_end;
use self::report::{decided, reports_only};
use super::answer::AnswerError;
use super::mode::Mode;
use super::owner::{Owner, Terms};

impl Composite {
    /// Returns the plan for a parent without a call of the function, if the mode or the state of the parent requires it.
    fn plan_without_call(&self, parent: &Parent<'_>) -> Option<Plan> {
        let owner = &parent.owner;
        let finalizes = owner.rules.finalizes;
        match self.mode {
            Mode::Run | Mode::Guard | Mode::DryRun => {}
            // No other mode calls a function for it either.
            Mode::Ends if owner.is_deleting() && !finalizes => return Some(parent.leave()),
            Mode::Ends => {
                let first = self.first_end(owner.object, &parent.expiring);
                return Some(first.into_iter().fold(Plan::default(), Plan::wake_at));
            }
            Mode::Leave => return Some(parent.leave()),
        }
        let asks_finalize = finalizes && owner.is_held();
        if owner.is_finalizing() && !asks_finalize {
            let leaves = owner.is_deleting() || owner.is_held();
            return Some(match leaves {
                true => parent.leave(),
                false => Plan::default(),
            });
        }
        (!self.declared.has_function()).then(|| wait_for_end(owner))
    }

    /// Returns the decision about a parent for which the function is called.
    fn reconcile(&self, parent: &Parent<'_>) -> Verdict<Question, Decision<Pass>> {
        let (owner, live) = (&parent.owner, parent.live);
        let terms = match owner.terms() {
            Ok(terms) => terms,
            Err(failure) => return self.stopped(parent, live.len(), failure.into()),
        };
        let claimed = match claim(owner, &terms.selector, parent.facts, live) {
            Ok(claimed) => claimed,
            Err(question) => return self.stopped(parent, live.len(), question.into()),
        };
        match self.respond(parent, &terms, &claimed) {
            Ok(decision) => Verdict::Decided(decision),
            Err(stop) => self.stopped(parent, claimed.own.len(), stop),
        }
    }

    /// Returns the decision that follows from the response of the function.
    fn respond(
        &self,
        parent: &Parent<'_>,
        terms: &Terms,
        claimed: &Claimed,
    ) -> Result<Decision<Pass>, Stop> {
        let (now, owner) = (parent.now, &parent.owner);
        let called = self.call(parent, claimed)?;
        let have = claimed.by_key();
        let desired = evaluate(now, owner, terms, called, &have);
        let desired = desired.map_err(|error| self.invalid(owner, &error))?;
        let application = Application {
            now,
            owner,
            mode: self.mode,
            claimed,
            have: &have,
            desired: &desired,
            facts: parent.facts,
        };
        let plan = application.plan(called.answer.finalized, self.report(parent))?;
        let plan = self.schedule(parent, terms.bounds, called, plan);
        let state = Pass::from_response(called);
        self.converge(parent, called, Decision { plan, state })
    }

    /// Returns the failure because of an invalid response.
    fn invalid(&self, owner: &Owner<'_>, error: &AnswerError) -> Failure {
        let message = format!(
            "{}: the response of the function for {}: {error}",
            self.declared.name,
            owner.key()
        );
        Failure::invalid("ResponseInvalid", message)
    }

    /// Returns the verdict about a pass that a stage ends. `children` is the number of children that the function may
    /// no longer return.
    fn stopped(
        &self,
        parent: &Parent<'_>,
        children: usize,
        stop: Stop,
    ) -> Verdict<Question, Decision<Pass>> {
        let until = self.first_end(parent.owner.object, &parent.expiring);
        let plan = match stop {
            Stop::Need(question) => return Verdict::Need { question, until },
            Stop::Unanswered(refused) => {
                let plan = self.unanswered(parent, children, refused.failure);
                refused.again.into_iter().fold(plan, Plan::wake_at)
            }
            Stop::Wait(again, failure) => {
                let plan = failure.into_iter().fold(Plan::default(), Plan::because);
                plan.wake_at(again)
            }
        };
        decided(until.into_iter().fold(plan, Plan::wake_at))
    }
}

impl Controller for Composite {
    type Object = DynamicObject;
    type Facts = Facts;
    type Question = Question;
    type State = Pass;
    type Status = Value;

    fn name(&self) -> &str {
        &self.name
    }

    fn dynamic_type(&self) -> ApiResource {
        self.family.parent.resource.clone()
    }

    fn current_status(&self, object: &DynamicObject) -> Option<Value> {
        object.data.get("status").cloned()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &DynamicObject,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Pass>> {
        let owner = match self.owner(object) {
            Ok(owner) => owner,
            Err(error) => return decided(Plan::default().because(error.into())),
        };
        let parent = Parent {
            now,
            owner,
            facts,
            live,
            expiring: expire::expiring(&owner, live),
        };
        let expired = parent.expired();
        if !expired.is_empty() {
            return self.expire(&parent, &expired);
        }
        if let Some(verdict) = self.end_parent(&parent) {
            return verdict;
        }
        if let Some(plan) = self.plan_without_call(&parent) {
            return decided(plan);
        }
        match self.reconcile(&parent) {
            Verdict::Decided(decision) if self.mode == Mode::DryRun => {
                decided(reports_only(decision.plan))
            }
            verdict => verdict,
        }
    }

    fn status(
        &self,
        _: Timestamp,
        object: &DynamicObject,
        decision: &Decision<Pass>,
        _: &Outcome,
    ) -> Value {
        self.status_of(object, &decision.state)
    }

    fn orphaned(&self, _: Timestamp, object: Option<&DynamicObject>, live: &[Live]) -> Plan {
        // The garbage collector deletes the others.
        let expiring = self.expiring(object, live);
        let deletes = expiring.iter();
        Plan::default().then(deletes.map(|(child, _)| Step::Delete(child.reference())))
    }

    fn selects(&self, object: &DynamicObject) -> Option<Selector> {
        if self.declared.generate_selector {
            return None;
        }
        self.owner(object).ok()?.selector().ok()
    }

    fn lasts_until(&self, object: Option<&DynamicObject>, live: &[Live]) -> Option<Timestamp> {
        self.first_end(object?, &self.expiring(object, live))
    }

    fn failed(&self, _: &DynamicObject, failure: &Failure) -> Option<Transition> {
        Some(Transition {
            warning: true,
            reason: "SyncError",
            action: "Sync",
            note: format!("{} ({}): {failure}", self.declared.name, failure.reason),
            due: None,
        })
    }
}
