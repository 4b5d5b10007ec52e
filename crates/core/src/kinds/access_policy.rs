//! The rules of [`AccessPolicy`].

use jiff::Timestamp;
use oz_api::{AccessPolicy, encode};

use super::{Kind, Role, defined};
use crate::validate::{self, Violation};

impl Kind for AccessPolicy {
    const ROLE: Role = Role::Policy;
    const NAME: &'static str = "accesspolicy";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        validate::policy(&self.metadata, &self.spec)
    }
}
