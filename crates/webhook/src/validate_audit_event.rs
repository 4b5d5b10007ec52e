//! The hook that reserves the audit trail for oz: its processes write AuditEvents, the operator
//! deletes those that are old enough, and the hook denies both to every other user, regardless of
//! their rights. The API server identifies the processes; the contents of an object never do.

use std::sync::Arc;

use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_trail::AuditEvent;

/// The hook that denies writes of AuditEvents by other users.
pub(crate) struct AuditEventGuard {
    /// The operator's user name.
    pub(crate) operator: Arc<str>,
    /// The webhook's own user name.
    pub(crate) webhook: Arc<str>,
    /// The broker's user name.
    pub(crate) broker: Arc<str>,
    /// The gate's user name.
    pub(crate) gate: Arc<str>,
}

impl Validate for AuditEventGuard {
    type Object = AuditEvent;

    async fn validate(&self, _: &Cx, review: &Review<AuditEvent>) -> Result<Notes, Rejection> {
        let user = review.user.username.as_str();
        let allowed = match review.operation {
            Operation::Create => {
                let all = [&self.operator, &self.webhook, &self.broker, &self.gate];
                all.into_iter().any(|one| &**one == user)
            }
            // The reaper of the operator.
            Operation::Delete => user == &*self.operator,
            _ => false,
        };
        if allowed {
            return Ok(Notes::none());
        }
        Err(Rejection::forbidden(
            "AuditTrailReserved",
            format!(
                "only oz writes and deletes AuditEvents ({}, {}, {}, {}); it deletes them after their \
                 retention (audit.retention)",
                self.operator, self.webhook, self.broker, self.gate
            ),
        ))
    }
}
