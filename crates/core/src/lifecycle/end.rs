//! Why something ends, and what `status.ending` keeps of it.

use jiff::Timestamp;
use oz_api::{EndReason, Ending, Phase, RequestStatus};
use oz_trail::Action;

use super::window::has_come;

/// How something ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// What was seen, where the reason does not say it all.
    pub detail: Option<String>,
}

impl End {
    /// Its time is over.
    pub const EXPIRED: Self = Self::plain(EndReason::Expired);
    /// Its time is over, and it was never in effect.
    pub const NEVER_ACTIVE: Self = Self::plain(EndReason::NeverActive);
    /// The object that asked for it was deleted.
    pub const DELETED: Self = Self::plain(EndReason::Deleted);
    /// Its template was changed, and says that this ends its grants.
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

    /// Somebody else changed what oz wrote.
    #[must_use]
    pub fn drift(what: String) -> Self {
        Self::with(EndReason::DriftDetected, what)
    }

    /// Its decision was sealed by an earlier release, whose key counts no more.
    #[must_use]
    pub fn seal_retired() -> Self {
        let what = "its decision was sealed by an earlier release, whose key counts no more";
        Self::with(EndReason::SealRetired, what.to_owned())
    }

    /// Its pod did not get ready in time.
    #[must_use]
    pub fn not_ready(why: String) -> Self {
        Self::with(EndReason::PodNotReady, why)
    }

    /// Its pod is gone, or another one has its name.
    #[must_use]
    pub fn pod_replaced(what: String) -> Self {
        Self::with(EndReason::PodReplaced, what)
    }

    /// Those who had to approve it did not in time.
    #[must_use]
    pub fn approval_timed_out(who: String) -> Self {
        Self::with(EndReason::ApprovalTimedOut, who)
    }

    /// A lock ended it.
    #[must_use]
    pub fn locked(by: String) -> Self {
        Self::with(EndReason::Locked, by)
    }

    /// Its ticket was closed.
    #[must_use]
    pub fn ticket_closed(what: String) -> Self {
        Self::with(EndReason::TicketClosed, what)
    }

    /// Nobody could be asked for long whether its ticket is still open.
    #[must_use]
    pub fn ticket_unanswered(what: String) -> Self {
        Self::with(EndReason::TicketUnanswered, what)
    }

    /// How what lasts until `until` ends when the object that asked for it is gone.
    pub(crate) fn of_gone(now: Timestamp, until: Timestamp) -> Self {
        if has_come(now, until) {
            Self::EXPIRED
        } else {
            Self::DELETED
        }
    }

    /// The end that was begun in an earlier pass, by what the status says.
    #[must_use]
    pub fn begun(status: Option<&RequestStatus>) -> Option<Self> {
        status
            .and_then(|status| status.ending.clone())
            .map(Self::from)
    }

    /// What a status keeps of this end, which goes on from `before` or begins now.
    #[must_use]
    pub fn ending(&self, before: Option<Ending>, now: Timestamp) -> Ending {
        let before = before.as_ref();
        Ending {
            reason: self.reason,
            detail: self.detail.clone(),
            since: before.and_then(|before| before.since).or(Some(now)),
            recorded: before.is_some_and(|before| before.recorded),
            sessions_ended: before.is_some_and(|before| before.sessions_ended),
            sessions_may_go_on: before.is_some_and(|before| before.sessions_may_go_on),
            sessions_given_up: before.is_some_and(|before| before.sessions_given_up),
        }
    }

    /// Whether somebody else changed what oz wrote.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        self.reason == EndReason::DriftDetected
    }

    /// What was seen; empty where the reason says it all.
    #[must_use]
    pub fn detail(&self) -> &str {
        self.detail.as_deref().unwrap_or_default()
    }

    /// The phase that it leads to.
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
            | EndReason::TicketUnanswered => Phase::Revoked,
            EndReason::PodNotReady => Phase::Failed,
        }
    }

    /// The action that is put on record.
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
