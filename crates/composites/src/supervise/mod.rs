//! The controllers of CompositeControllers and RegoControllers: the decision which of them run, as which service
//! account, and their conditions. An invalid composite, or one with an account that lacks a right, does not run and
//! reports it; other composites are not affected. The stages of a pass: a composite is surveyed (`survey`), evaluated
//! (`evaluate`, with its rights in `permit` and its deletions in `deletions`), run or released (`run`, `release`), and
//! reported (`report`).

mod composites;
mod deletions;
mod evaluate;
mod permit;
mod release;
mod report;
mod run;
mod survey;

use jiff::Timestamp;
use oz_api::Uid;
use oz_api::composite::CompositeControllerStatus;
use oz_core::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};
use oz_core::lifecycle::window::after;
use oz_core::validate::Violation;

pub use self::composites::Composites;
pub use self::deletions::DELETION_LIMIT_EXCEEDED;
pub use self::report::{ACCEPTED, PERMITTED, RUNNING, Standing};
pub use self::run::{PORT, Run, Runs};
pub use self::survey::{KIND_MISSING, Kinds, Later, PolicyFound, Survey};
pub use super::mode::Mode;
pub use super::needs::{binds, has_ends, needs, needs_of_rules};
pub use oz_api::names::COMPOSITE_FINALIZER as FINALIZER;

use self::composites::is_held;
use self::evaluate::{LOOK_AGAIN, LOOK_AGAIN_SOON};
use self::release::release;
use self::report::transitions;
use super::declared::Declared;
use super::source::Source;

impl<S: Source> Composites<S> {
    /// Returns the declaration of a composite that can run.
    ///
    /// # Errors
    /// The reason of the condition, and its message.
    fn accept(&self, composite: &S) -> Result<Declared, (&'static str, String)> {
        match composite.declared() {
            Ok(declared) if !self.natively.contains(&declared.parent) => Ok(declared),
            Ok(declared) => {
                let message = format!(
                    "{} is served by oz itself (transient.serveExampleCom); switch that off to have the composite run",
                    declared.parent
                );
                Err(("ServedNatively", message))
            }
            Err(violations) => Err(("NotAccepted", Violation::list(&violations))),
        }
    }

    /// Returns the decision about a declaration that cannot run. Children that it created before are in its kinds, if
    /// those can be read.
    fn wrong(
        &self,
        now: Timestamp,
        (uid, composite): (Uid<'_>, &S),
        survey: &Option<Survey>,
        (reason, message): (&'static str, String),
    ) -> Verdict<Box<Declared>, Decision<Standing>> {
        let leaving = self.is_leaving(composite);
        let bare = composite.bare();
        match (bare.declared(), survey) {
            (Ok(declared), None) => Verdict::Need {
                question: Box::new(declared),
                until: None,
            },
            (Ok(_), Some(survey)) if leaving => {
                Verdict::Decided(self.leave(now, uid, &bare, survey))
            }
            (Ok(_), Some(survey)) => {
                let mut decision = self.refused(uid, &bare, Some(survey), (reason, message));
                let wake = match survey.kinds {
                    Kinds::Served { hidden: false, .. } => LOOK_AGAIN,
                    _ => LOOK_AGAIN_SOON,
                };
                decision.plan = decision.plan.wake_at(after(now, wake));
                Verdict::Decided(decision)
            }
            (Err(_), _) => {
                let mut decision = self.refused(uid, composite, None, (reason, message));
                if leaving {
                    // A composite without readable kinds has no children.
                    decision.plan = decision.plan.then([release()]);
                }
                Verdict::Decided(decision)
            }
        }
    }
}

impl<S: Source> Controller for Composites<S> {
    type Object = S;
    type Facts = Option<Survey>;
    type Question = Box<Declared>;
    type State = Standing;
    type Status = CompositeControllerStatus;

    fn name(&self) -> &str {
        S::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &S) -> Option<CompositeControllerStatus> {
        object.standing().cloned()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &S,
        facts: &Option<Survey>,
        _: &[Live],
    ) -> Verdict<Box<Declared>, Decision<Standing>> {
        let decided = |plan| {
            let state = Standing::default();
            Verdict::Decided(Decision { plan, state })
        };
        let uid = match Uid::from_metadata(object.meta()) {
            Ok(uid) => uid,
            Err(error) => return decided(Plan::default().because(error.into())),
        };
        let leaving = self.is_leaving(object);
        if leaving && !is_held(object) {
            return decided(Plan::default().then([self.stop(uid)]));
        }
        let declared = match self.accept(object) {
            Ok(declared) => declared,
            Err(why) => return self.wrong(now, (uid, object), facts, why),
        };
        match facts {
            None => Verdict::Need {
                question: Box::new(declared),
                until: None,
            },
            Some(survey) if leaving => Verdict::Decided(self.leave(now, uid, object, survey)),
            Some(survey) => Verdict::Decided(self.surveyed(now, uid, (object, &declared), survey)),
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &S,
        decision: &Decision<Standing>,
        outcome: &Outcome,
    ) -> CompositeControllerStatus {
        self.status_of(now, object, decision, outcome)
    }

    fn orphaned(&self, _: Timestamp, object: Option<&S>, _: &[Live]) -> Plan {
        let uid = object.and_then(|object| Uid::from_metadata(object.meta()).ok());
        Plan::default().then(uid.map(|uid| self.stop(uid)))
    }

    fn transitions(
        &self,
        _: &S,
        before: Option<&CompositeControllerStatus>,
        after: &CompositeControllerStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}
