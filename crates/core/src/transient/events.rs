//! The events for the change from one status to the next.

use oz_api::{BindingStatus, Phase, conditions};

use super::kind::StoredBinding;
use super::policy::ROLE_TOO_POWERFUL;
use super::report::{READY, ROLE_HARMLESS};
use crate::controller::Transition;
use crate::lifecycle::transitions::{Change, Names, event};

const NAMES: Names = Names {
    active: ("BindingActivated", "Bind"),
    expired: ("BindingExpired", "Unbind"),
    revoked: ("BindingRevoked", "Unbind"),
    denied: ("BindingDenied", "Deny"),
    failed: ("BindingFailed", "Refuse"),
    waiting: ("BindingWaiting", "Wait"),
    loud: false,
};

/// The names of the events of an emergency.
const EMERGENCY_NAMES: Names = Names {
    active: ("EmergencyGranted", "Bind"),
    loud: true,
    ..NAMES
};

pub(super) fn transitions(
    binding: &StoredBinding<'_>,
    before: Option<&BindingStatus>,
    after: &BindingStatus,
) -> Vec<Transition> {
    let ready = conditions::find(&after.conditions, READY);
    let terms = binding.terms.as_ref().ok();
    let waits = after.phase == Phase::Pending;
    let change = Change {
        names: match conditions::is_true(&after.conditions, conditions::EMERGENCY) {
            true => &EMERGENCY_NAMES,
            false => &NAMES,
        },
        phase: (
            before.map_or(Phase::Pending, |status| status.phase),
            after.phase,
        ),
        note: ready.map(|ready| ready.message.clone()),
        due: match after.phase {
            Phase::Active => terms.map(|terms| terms.due(binding.created())),
            Phase::Expired => after.remembers_until(),
            _ => None,
        },
        besides: danger(after),
        before: before.map_or(&[], |status| &status.conditions),
        needed: ready
            .into_iter()
            .filter(|ready| waits && ready.reason != "NotYetValid")
            .collect(),
    };
    change.events()
}

fn danger(after: &BindingStatus) -> Option<Transition> {
    let told = conditions::find(&after.conditions, ROLE_HARMLESS)?;
    let name = (ROLE_TOO_POWERFUL, "Bind");
    (after.phase == Phase::Active).then(|| event(true, name, told.message.clone()))
}
