//! The rules of [`AccessReview`].

use jiff::Timestamp;
use oz_api::AccessReview;

use super::Rules;
use crate::validate::{self, Violation};

impl Rules for AccessReview {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        validate::review(&self.spec)
    }
}
