//! Applying: the plan that brings the children of an owner to their desired state, as far as the mode and the rights of
//! the owner's authors permit it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_core::controller::{Key, Live, Plan, Step};
use oz_core::lifecycle::window::after;

use super::changes::{Changes, as_stored, name};
use super::claim::Claimed;
use super::evaluate::Desired;
use super::facts::{Facts, Question};
use crate::guard::Report;
use crate::mode::Mode;
use crate::owner::Owner;
use crate::rights::{CHECK_AGAIN, Judge, Judged};

/// The application of a response to the children of an owner.
pub(super) struct Application<'a> {
    pub(super) now: Timestamp,
    pub(super) owner: &'a Owner<'a>,
    pub(super) mode: Mode,
    /// The objects that concern the owner.
    pub(super) claimed: &'a Claimed,
    /// The existing children.
    pub(super) have: &'a BTreeMap<Key, &'a Live>,
    /// The desired children.
    pub(super) desired: &'a [Desired],
    pub(super) facts: &'a Facts,
}

impl Application<'_> {
    /// Returns the plan, or the data that it requires. An owner that is `finalized` is released. `report` is the report
    /// without changes.
    pub(super) fn plan(&self, finalized: bool, report: Report) -> Result<Plan, Question> {
        let owner = self.owner;
        let plan = self.claim();
        let stored = self.facts.stored.as_deref();
        let stored = as_stored(self.have, self.desired, stored)?;
        let mut changes = Changes::between(owner, self.have, self.desired, &stored);
        let plan = self.judge(plan, &mut changes)?;
        let plan = self.carry_out(plan, changes, report);
        let releases = owner.is_finalizing() && finalized;
        let release = releases.then(|| Step::Release(owner.rules.finalizer.to_owned()));
        Ok(plan.then(release))
    }

    /// Returns the plan with which the owner takes its children: it waits for their expiry, adopts objects, and releases
    /// others.
    fn claim(&self) -> Plan {
        let owner = self.owner;
        let ends = self.desired.iter().filter_map(|one| one.until);
        let mut plan = ends.min().into_iter().fold(Plan::default(), Plan::wake_at);
        let holds = owner.rules.finalizes || plan.wake.is_some();
        if holds && !owner.is_held() && !owner.is_finalizing() {
            plan = plan.then([Step::Hold(owner.rules.finalizer.to_owned())]);
        }
        if !owner.is_deleting() {
            let reference = owner.reference();
            let adopted = self.claimed.adoptable.iter();
            let adopted = adopted.map(|one| Step::Adopt(one.reference(), reference.clone()));
            let released = self.claimed.released.iter();
            plan = plan.then(adopted.chain(released.map(|one| Step::Disown(one.reference()))));
        }
        plan
    }

    /// Removes the changes that the authors of the owner may not make.
    fn judge(&self, plan: Plan, changes: &mut Changes) -> Result<Plan, Question> {
        let owner = self.owner;
        // The rights are not checked where nothing is written.
        let Some(policy) = owner.rules.bindable else {
            return Ok(plan);
        };
        let judge = Judge {
            owner,
            policy,
            have: self.have,
        };
        // The garbage collector deletes the children of an owner that is being deleted, without a check.
        let deletions = changes.deletions().filter(|_| !owner.is_deleting());
        let steps = changes.applies.iter().chain(deletions);
        match judge.judge(steps, &self.facts.rights) {
            Judged::Ask(wants) => Err(Question::Rights(wants)),
            Judged::Refused(_, None) => Ok(plan),
            Judged::Refused(keys, Some(failure)) => {
                changes.leave_out(&keys);
                let again = after(self.now, CHECK_AGAIN);
                Ok(plan.because(failure).wake_at(again))
            }
        }
    }

    /// Returns the plan with the changes that the mode permits, and reports the others.
    fn carry_out(&self, plan: Plan, changes: Changes, report: Report) -> Plan {
        let uid = self.owner.uid.as_str();
        let names = |steps: &[Step]| steps.iter().filter_map(name).collect();
        let delete = Report {
            delete: names(&changes.unwanted),
            ..report
        };
        match self.mode {
            Mode::Guard => {
                let mut plan = plan.then(changes.replaced).then(changes.applies);
                // Reported before a step can fail.
                plan.stages.insert(0, vec![delete.step(uid)]);
                plan
            }
            Mode::DryRun => {
                let is_new = |step: &Step| name(step).is_some_and(|it| changes.new.contains(&it));
                let (create, change) = changes
                    .applies
                    .iter()
                    .cloned()
                    .partition::<Vec<_>, _>(is_new);
                let report = Report {
                    create: names(&create),
                    change: names(&change),
                    ..delete
                };
                plan.then([report.step(uid)])
            }
            _ => plan
                .then(changes.unwanted.into_iter().chain(changes.replaced))
                .then(changes.applies),
        }
    }
}
