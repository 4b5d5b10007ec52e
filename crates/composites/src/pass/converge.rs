//! The delay of the plans of a parent that does not converge.

use std::collections::BTreeSet;

use oz_core::controller::{Decision, Key, Live, Step};

use super::changes::name;
use super::composite::Composite;
use super::facts::{Parent, Question, Stop};
use super::report::Pass;
use super::schedule::requested;
use crate::ends;
use crate::function::Called;
use crate::mode::Mode;
use crate::settling::Change;

impl Composite {
    /// Returns the decision, unless its changes are delayed.
    pub(super) fn converge(
        &self,
        parent: &Parent<'_>,
        called: &Called,
        decision: Decision<Pass>,
    ) -> Result<Decision<Pass>, Stop> {
        let Some(change) = self.change(parent, called, &decision) else {
            return Ok(decision);
        };
        match parent.facts.slowed {
            None => Err(Question::Slowed(change).into()),
            Some(None) => Ok(decision),
            Some(Some(again)) => {
                let failure = change.failure(&self.declared.name);
                Err(Stop::Wait(again, Some(failure)))
            }
        }
    }

    /// Returns the change of existing objects by a decision; `None` if it only creates objects.
    fn change(
        &self,
        parent: &Parent<'_>,
        called: &Called,
        decision: &Decision<Pass>,
    ) -> Option<Change> {
        if self.mode == Mode::DryRun || parent.owner.is_deleting() {
            return None;
        }
        let object = parent.owner.object;
        let mut steps = decision.plan.steps();
        let mut what = Vec::new();
        if steps.any(|step| matches!(step, Step::Apply(_) | Step::Delete(_))) {
            let there: BTreeSet<Key> = parent.live.iter().map(Live::key).collect();
            let changes = decision.plan.steps().filter(|step| match step {
                Step::Apply(child) => there.contains(&child.key()),
                Step::Delete(_) => true,
                _ => false,
            });
            what.extend(changes.filter_map(name));
        }
        let status = object.data.get("status");
        if status.is_some_and(|now| *now != self.status_of(object, &decision.state)) {
            what.push("its status".to_owned());
        }
        if what.is_empty() {
            return None;
        }
        let resync = self.declared.resync.into_iter();
        let resync = resync.chain(requested(called)).min();
        // Time that passes is a cause as well, at the instants that the parent names.
        let instants = ends::instants(&object.data, parent.now);
        let of = (called.policy.as_deref(), instants.first().copied());
        Some(Change::new(object, of, parent.live, resync, what))
    }
}
