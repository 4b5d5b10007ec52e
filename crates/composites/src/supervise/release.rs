//! Releasing: the end of a composite that is being deleted, or that belongs to another controller.

use jiff::{SignedDuration, Timestamp};
use oz_api::Uid;
use oz_api::names::COMPOSITE_FINALIZER;
use oz_core::controller::{Decision, Plan, Step};
use oz_core::lifecycle::window::after;

use super::composites::Composites;
use super::evaluate::LOOK_AGAIN_SOON;
use super::report::Standing;
use super::survey::{Kinds, Survey};
use crate::mode::Mode;
use crate::source::Source;

/// Interval between two passes while parents are released.
const LEAVING: SignedDuration = SignedDuration::from_millis(500);

/// Returns the step that releases a composite.
pub(super) fn release() -> Step {
    Step::Release(COMPOSITE_FINALIZER.to_owned())
}

impl<S: Source> Composites<S> {
    /// Returns the decision about a composite that is being deleted: children with an expiry are deleted with it, and
    /// parents are released.
    pub(super) fn leave(
        &self,
        now: Timestamp,
        uid: Uid<'_>,
        composite: &S,
        survey: &Survey,
    ) -> Decision<Standing> {
        let state = Standing::default();
        let run = |mode| self.effect(uid, Some(composite), Some(survey), None, mode);
        let over = || Plan::default().then([self.stop(uid)]).then([release()]);
        let plan = match &survey.kinds {
            Kinds::NoParents => over(),
            _ if survey.held == Some(0) => over(),
            // Children of a kind that cannot be read now may have an expiry.
            Kinds::Unknown | Kinds::Served { hidden: true, .. } => {
                let ends = Plan::default().then([run(Mode::Ends)]);
                ends.wake_at(after(now, LOOK_AGAIN_SOON))
            }
            Kinds::Served { .. } => {
                let leaves = Plan::default().then([run(Mode::Leave)]);
                leaves.wake_at(after(now, LEAVING))
            }
        };
        Decision { plan, state }
    }
}
