//! The next pass over a parent without an event.

use jiff::SignedDuration;
use oz_core::controller::Plan;
use oz_core::lifecycle::window::{after, has_come};

use super::composite::Composite;
use super::facts::Parent;
use crate::ends;
use crate::function::Called;
use crate::window::Bounds;

/// Minimum interval between two passes that a function requests.
const SHORTEST_RESYNC: SignedDuration = SignedDuration::from_millis(100);
/// Maximum interval between two passes that a function requests; a number that is not valid has this value.
const LONGEST_RESYNC: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Delay of the pass that follows a call of the function with children that expired.
const ONCE_MORE: SignedDuration = SignedDuration::from_secs(1);

impl Composite {
    /// Adds the instant of the next pass without an event to a plan.
    pub(super) fn schedule(
        &self,
        parent: &Parent<'_>,
        bounds: Bounds,
        called: &Called,
        mut plan: Plan,
    ) -> Plan {
        let now = parent.now;
        let mut bounds = [bounds.from, bounds.until].into_iter().flatten();
        let ahead = bounds.find(|at| !has_come(now, *at));
        plan = ahead.into_iter().fold(plan, Plan::wake_at);
        for length in [self.declared.resync, requested(called)]
            .into_iter()
            .flatten()
        {
            plan = plan.wake_at(after(now, length));
        }
        let first = called.ahead.first().map(|(at, _)| *at);
        let at = match (self.declared.sync.in_process.is_some(), first) {
            (true, at) => at.or(called.look_again),
            (false, _) => ends::instants(&parent.owner.object.data, now)
                .into_iter()
                .find(|instant| !has_come(now, *instant)),
        };
        plan = at.into_iter().fold(plan, Plan::wake_at);
        match parent.expired_before() {
            [] => plan,
            _ => plan.wake_at(after(now, ONCE_MORE)),
        }
    }
}

/// Returns the interval after which a function requests the next pass, within the limits.
pub(super) fn requested(called: &Called) -> Option<SignedDuration> {
    let seconds = called.answer.resync_after?;
    let asked = SignedDuration::try_from_secs_f64(seconds).unwrap_or(LONGEST_RESYNC);
    Some(asked.clamp(SHORTEST_RESYNC, LONGEST_RESYNC))
}
