//! The rules of [`AuditEvent`].

use jiff::Timestamp;
use oz_trail::AuditEvent;

use super::Rules;
use crate::validate::Violation;

impl Rules for AuditEvent {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        Vec::new()
    }
}
