//! The rules of [`AccessLock`].

use jiff::Timestamp;
use oz_api::{AccessLock, encode};

use super::{Kind, Role, defined};
use crate::validate::{self, Violation};

impl Kind for AccessLock {
    const ROLE: Role = Role::Lock;
    const NAME: &'static str = "accesslock";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, now: Timestamp) -> Vec<Violation> {
        validate::lock(&self.metadata, &self.spec, now, validate::LockWhen::Made)
    }
}
