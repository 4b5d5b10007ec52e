//! The rules of [`AuditEvent`].

use jiff::Timestamp;
use oz_api::encode;
use oz_trail::AuditEvent;

use super::{Kind, Role, defined};
use crate::validate::Violation;

impl Kind for AuditEvent {
    const ROLE: Role = Role::Record;
    const NAME: &'static str = "auditevent";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        Vec::new()
    }
}
