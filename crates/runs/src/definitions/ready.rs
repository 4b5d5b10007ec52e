//! The condition Ready of templates and policies.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_core::controller::Transition;
use oz_core::validate::Violation;

/// Condition of a template: runs can use it. Condition of a policy: its grants admit runs.
pub const READY: &str = "Ready";

/// The maximum size of a message, in bytes: the number of violations is not limited.
const MOST: usize = 4_096;

/// Reasons of the conditions of templates and policies.
pub mod reason {
    /// The object can be used.
    pub const SUCCESS: &str = oz_api::conditions::reason::SUCCESS;
    /// Template: the one that it inherits from does not exist.
    pub const BASE_NOT_FOUND: &str = "BaseNotFound";
    /// Template: the one that it inherits from cannot be used.
    pub const BASE_INVALID: &str = "BaseInvalid";
    /// Something in it cannot stay as it is.
    pub const INVALID: &str = "Invalid";
    /// Template: something in podTemplateOverlay, and nothing else, cannot stay as it is.
    pub const OVERLAY_INVALID: &str = "OverlayInvalid";
    /// Policy: it has no discovery.
    pub const NO_DISCOVERY: &str = "NoDiscovery";
    /// Policy: its discovery lets any host through.
    pub const ACTIVE: &str = "Active";
    /// Policy: its discovery has ended, and is still there.
    pub const EXPIRED: &str = "Expired";
    /// Policy: brokers may not get a Secret of its credentials.
    pub const MISSING_PERMISSION: &str = "MissingPermission";
    /// Policy: the permissions of brokers could not be checked.
    pub const PERMISSIONS_UNKNOWN: &str = "PermissionsUnknown";
}

/// The reason why a template or a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Reason in CamelCase, one of [`reason`].
    pub reason: &'static str,
    /// The cause and the next step, for users.
    pub message: String,
}

impl Unusable {
    /// Creates the value for these violations; `None` without violations.
    pub(super) fn by(reason: &'static str, violations: &[Violation]) -> Option<Self> {
        (!violations.is_empty()).then(|| Self {
            reason,
            message: listed(violations),
        })
    }
}

/// Returns the message with all violations that fit, without control characters: parts of their paths are user input.
pub(super) fn listed(violations: &[Violation]) -> String {
    let whole = Violation::list(violations);
    let shown = |next: char| if next.is_control() { '\u{fffd}' } else { next };
    let mut text: String = whole.chars().map(shown).collect();
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push_str(&format!("… ({} violations in all)", violations.len()));
    }
    text
}

/// Sets [`READY`]; `usable` is the message if it can be used.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    found: &Result<(), Unusable>,
    usable: String,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (reason, message) = match found {
        Ok(()) => (reason::SUCCESS, usable),
        Err(unusable) => (unusable.reason, unusable.message.clone()),
    };
    conditions::set(
        conditions,
        READY,
        found.is_ok(),
        reason,
        message,
        generation,
        now,
    );
}

/// The event for a change of [`READY`], if it is one: `names` are its reasons, if it can be used and if not.
pub(super) fn transition(
    before: Option<&[Condition]>,
    after: &[Condition],
    names: [&'static str; 2],
    action: &'static str,
) -> Option<Transition> {
    let now = conditions::find(after, READY)?;
    let [ready, not_ready] = names;
    let holds = now.status == "True";
    before
        .is_none_or(|before| conditions::is_news(before, now))
        .then(|| Transition {
            warning: !holds,
            reason: if holds { ready } else { not_ready },
            action,
            note: now.message.clone(),
            due: None,
        })
}

/// The event for a change of a condition that is expected to hold, or of the reason why it does not: none for a new
/// object on which it holds. `names` are the reasons of the event, if it holds and if not.
pub(super) fn lapse(
    before: Option<&[Condition]>,
    after: &[Condition],
    type_: &str,
    names: [&'static str; 2],
    action: &'static str,
) -> Option<Transition> {
    let now = conditions::find(after, type_)?;
    let then = before.and_then(|before| conditions::find(before, type_));
    let holds = now.status == "True";
    let is_news = match then {
        Some(then) => (&then.status, &then.reason) != (&now.status, &now.reason),
        None => !holds,
    };
    is_news.then(|| Transition {
        warning: !holds,
        reason: names[usize::from(!holds)],
        action,
        note: now.message.clone(),
        due: None,
    })
}
