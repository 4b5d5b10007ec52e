//! The events for the change from one status to the next: a change of phase, or a new obstacle.

use super::kind::Binding;
use super::policy::ROLE_TOO_POWERFUL;
use super::report::{READY, ROLE_HARMLESS};
use crate::api::{BindingStatus, Phase};
use crate::conditions;
use crate::controller::Transition;

pub(super) fn transitions(
    binding: &Binding<'_>,
    before: Option<&BindingStatus>,
    after: &BindingStatus,
) -> Vec<Transition> {
    let was = before.map(|status| status.phase).unwrap_or_default();
    let ready = conditions::find(&after.conditions, READY);
    let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
    if was != after.phase {
        let change = phase_change(binding, after, message).into_iter();
        return change.chain(danger(after)).collect();
    }
    let Some(ready) = ready.filter(|ready| ready.status == "False" && was == Phase::Pending) else {
        return Vec::new();
    };
    let known = before
        .and_then(|status| conditions::find(&status.conditions, READY))
        .is_some_and(|then| then.reason == ready.reason);
    if known || ready.reason == "NotYetValid" {
        return Vec::new();
    }
    vec![Transition {
        warning: true,
        reason: "BindingWaiting",
        action: "Wait",
        note: format!("{}: {message}", ready.reason),
        due: None,
    }]
}

/// For those who look at what happened and not at how it stands.
fn danger(after: &BindingStatus) -> Option<Transition> {
    let told = conditions::find(&after.conditions, ROLE_HARMLESS)?;
    (after.phase == Phase::Active).then(|| Transition {
        warning: true,
        reason: ROLE_TOO_POWERFUL,
        action: "Bind",
        note: told.message.clone(),
        due: None,
    })
}

fn phase_change(binding: &Binding<'_>, after: &BindingStatus, note: String) -> Option<Transition> {
    let opened = || {
        let terms = binding.terms.as_ref().ok()?;
        Some(terms.due(binding.created()))
    };
    let ended = after.activated_at.and(after.expires_at);
    let (warning, reason, action, due) = match after.phase {
        Phase::Pending => return None,
        Phase::Active => (false, "BindingActivated", "Bind", opened()),
        Phase::Expired => (false, "BindingExpired", "Unbind", ended),
        Phase::Revoked => (true, "BindingRevoked", "Unbind", None),
        Phase::Denied => (true, "BindingDenied", "Deny", None),
        Phase::Failed => (true, "BindingFailed", "Refuse", None),
    };
    Some(Transition {
        warning,
        reason,
        action,
        note,
        due,
    })
}
