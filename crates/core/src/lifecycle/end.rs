//! The end of an object, and its form in `status.ending`.

use std::fmt::Display;

use jiff::Timestamp;
use oz_api::{EndReason, Ending, Phase, RequestStatus};
use oz_trail::Action;

use super::window::has_come;

/// The end of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Reason.
    pub reason: EndReason,
    /// Observation, if the reason is not sufficient.
    pub detail: Option<String>,
}

impl End {
    /// The end at its expiry.
    pub const EXPIRED: Self = Self::plain(EndReason::Expired);
    /// The end at its expiry, without ever being in effect.
    pub const NEVER_ACTIVE: Self = Self::plain(EndReason::NeverActive);
    /// The end because the requesting object was deleted.
    pub const DELETED: Self = Self::plain(EndReason::Deleted);
    /// The end because another user deleted the Job of a harness run.
    pub const JOB_DELETED: Self = Self::plain(EndReason::JobDeleted);
    /// The end because its template was changed, and the template ends its grants in that case.
    pub const TEMPLATE_CHANGED: Self = Self::plain(EndReason::TemplateChanged);

    const fn plain(reason: EndReason) -> Self {
        Self {
            reason,
            detail: None,
        }
    }

    fn with(reason: EndReason, detail: String) -> Self {
        Self {
            reason,
            detail: Some(detail),
        }
    }

    /// Creates the end because another user changed objects that oz wrote.
    #[must_use]
    pub fn drift(what: impl Display) -> Self {
        Self::with(EndReason::DriftDetected, what.to_string())
    }

    /// Creates the end because an earlier release sealed the decision, with a key that is no longer accepted.
    #[must_use]
    pub fn seal_retired() -> Self {
        let what = "its decision was sealed by an earlier release, whose key is no longer valid";
        Self::with(EndReason::SealRetired, what.to_owned())
    }

    /// Creates the end because the pod did not become ready in time.
    #[must_use]
    pub fn not_ready(why: String) -> Self {
        Self::with(EndReason::PodNotReady, why)
    }

    /// Creates the end because the pod no longer exists, or another one has its name.
    #[must_use]
    pub fn pod_replaced(what: impl Display) -> Self {
        Self::with(EndReason::PodReplaced, what.to_string())
    }

    /// Creates the end because the required approvals were not given in time.
    #[must_use]
    pub fn approval_timed_out(who: String) -> Self {
        Self::with(EndReason::ApprovalTimedOut, who)
    }

    /// Creates the end because of a lock.
    #[must_use]
    pub fn locked(by: String) -> Self {
        Self::with(EndReason::Locked, by)
    }

    /// Creates the end because the change ticket was closed.
    #[must_use]
    pub fn ticket_closed(what: String) -> Self {
        Self::with(EndReason::TicketClosed, what)
    }

    /// Creates the end because, for a long time, no server responded whether the change ticket is still open.
    #[must_use]
    pub fn ticket_unanswered(what: String) -> Self {
        Self::with(EndReason::TicketCheckUnavailable, what)
    }

    /// Creates the end because the requester is no longer on call, by the check that replaced an approval.
    #[must_use]
    pub fn on_call_ended(what: String) -> Self {
        Self::with(EndReason::OnCallEnded, what)
    }

    /// Creates the end because, for a long time, no server responded whether the requester is still on call.
    #[must_use]
    pub fn on_call_unanswered(what: String) -> Self {
        Self::with(EndReason::OnCallCheckUnavailable, what)
    }

    /// Creates the end because other NetworkPolicies permit more connections than oz does.
    #[must_use]
    pub fn not_confined(why: impl Display) -> Self {
        Self::with(EndReason::NotConfined, why.to_string())
    }

    /// Creates the end of access until `until` of which the requesting object is gone.
    pub(crate) fn of_gone(now: Timestamp, until: Timestamp) -> Self {
        if has_come(now, until) {
            Self::EXPIRED
        } else {
            Self::DELETED
        }
    }

    /// Reads the end that began in an earlier pass from the status.
    #[must_use]
    pub fn begun(status: Option<&RequestStatus>) -> Option<Self> {
        status
            .and_then(|status| status.ending.clone())
            .map(Self::from)
    }

    /// Returns this end in the form of the status; it continues `before` or begins now.
    #[must_use]
    pub fn ending(&self, before: Option<&Ending>, now: Timestamp) -> Ending {
        Ending {
            reason: self.reason,
            detail: self.detail.clone(),
            since: before.and_then(|before| before.since).or(Some(now)),
            recorded: before.is_some_and(|before| before.recorded),
            sessions_ended: before.is_some_and(|before| before.sessions_ended),
            sessions_may_continue: before.is_some_and(|before| before.sessions_may_continue),
            sessions_abandoned: before.is_some_and(|before| before.sessions_abandoned),
        }
    }

    /// Checks whether another user changed objects that oz wrote.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        self.reason == EndReason::DriftDetected
    }

    /// Returns the observation; empty if the reason is sufficient.
    #[must_use]
    pub fn detail(&self) -> &str {
        self.detail.as_deref().unwrap_or_default()
    }

    /// Returns the resulting phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.reason {
            EndReason::Expired | EndReason::NeverActive | EndReason::ApprovalTimedOut => {
                Phase::Expired
            }
            EndReason::Deleted
            | EndReason::TemplateChanged
            | EndReason::DriftDetected
            | EndReason::SealRetired
            | EndReason::PodReplaced
            | EndReason::Locked
            | EndReason::TicketClosed
            | EndReason::TicketCheckUnavailable
            | EndReason::OnCallEnded
            | EndReason::OnCallCheckUnavailable
            | EndReason::JobDeleted
            | EndReason::NotConfined => Phase::Revoked,
            EndReason::PodNotReady => Phase::Failed,
        }
    }

    /// Returns the action for the audit record.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.phase() {
            Phase::Expired => Action::AccessExpired,
            _ => Action::AccessRevoked,
        }
    }
}

impl From<Ending> for End {
    fn from(Ending { reason, detail, .. }: Ending) -> Self {
        Self { reason, detail }
    }
}
