//! The rules of [`AccessPolicy`].

use jiff::Timestamp;
use oz_api::AccessPolicy;

use super::Rules;
use crate::validate::{self, Violation};

impl Rules for AccessPolicy {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        validate::policy(&self.metadata, &self.spec)
    }
}
