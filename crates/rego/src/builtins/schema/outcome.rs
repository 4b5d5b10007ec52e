//! The violations that a comparison has found, and how well the value fits.

use std::rc::Rc;

use super::fault::{Fault, Found, Path};

/// The violations that were found, and how well a value fits.
#[derive(Default)]
pub(super) struct Outcome<'s> {
    pub(super) found: Vec<Found<'s>>,
    pub(super) score: i64,
}

impl<'s> Outcome<'s> {
    pub(super) fn is_valid(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn add(&mut self, path: &Rc<Path>, fault: Fault<'s>) {
        let path = Rc::clone(path);
        self.found.push(Found { path, fault });
        self.score -= 2;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.found.extend(other.found);
        self.score += other.score;
    }
}

/// The best of several outcomes that are not valid: the first one with the highest score.
#[derive(Default)]
pub(super) struct Best<'s>(pub(super) Option<Outcome<'s>>);

impl<'s> Best<'s> {
    pub(super) fn offer(&mut self, outcome: Outcome<'s>) {
        let is_better = self
            .0
            .as_ref()
            .is_none_or(|best| outcome.score > best.score);
        if is_better {
            self.0 = Some(outcome);
        }
    }
}
