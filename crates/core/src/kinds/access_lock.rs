//! The rules of [`AccessLock`].

use jiff::Timestamp;
use oz_api::AccessLock;

use super::Rules;
use crate::validate::{self, Violation};

impl Rules for AccessLock {
    fn violations(&self, now: Timestamp) -> Vec<Violation> {
        validate::lock(&self.metadata, &self.spec, now, validate::LockWhen::Made)
    }
}
