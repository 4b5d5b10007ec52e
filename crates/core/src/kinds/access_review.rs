//! The rules of [`AccessReview`].

use jiff::Timestamp;
use oz_api::{AccessReview, encode};

use super::{Kind, Role, defined};
use crate::validate::{self, Violation};

impl Kind for AccessReview {
    const ROLE: Role = Role::Review;
    const NAME: &'static str = "accessreview";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        validate::review(&self.spec)
    }
}
