//! When an answer changes: found by asking, at instants at which it may.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::error::EvaluateError;
use crate::evaluate::{Answer, Limits};
use crate::policy::Policy;

/// How many instants are tried, the earliest first.
pub const MAX_INSTANTS: usize = 32;

/// An answer, and since when it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The first nanosecond at which this is the answer.
    pub at: Timestamp,
    /// The answer from then on.
    pub answer: Answer,
}

/// What a policy says now, and what it will say if nothing but time passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The answer now.
    pub now: Answer,
    /// Later answers, in the order of time. No two in a row are the same.
    pub changes: Vec<Change>,
    /// Whether there were more instants than were tried: there may be later changes. Look again at the
    /// last one that was.
    pub tried_until: Option<Timestamp>,
}

impl Preview {
    /// When to ask again.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let change = self.changes.first().map(|change| change.at);
        change.or(self.tried_until)
    }
}

impl Policy {
    /// Asks now, at each of these instants (in the order of time, from now on), and one nanosecond after each.
    /// `part` is what of an answer is compared: what tells the time itself is always another.
    ///
    /// # Errors
    /// As [`Policy::evaluate`].
    pub fn preview<T: PartialEq>(
        &self,
        path: &str,
        input: &Value,
        instants: &[Timestamp],
        now: Timestamp,
        limits: &Limits,
        part: impl Fn(&Answer) -> T,
    ) -> Result<Preview, EvaluateError> {
        let answer = self.evaluate(path, input, now, limits)?;
        let mut last = part(&answer);
        let mut preview = Preview {
            now: answer,
            changes: Vec::new(),
            tried_until: None,
        };
        let tried = instants.get(..MAX_INSTANTS).unwrap_or(instants);
        if tried.len() < instants.len() {
            preview.tried_until = tried.last().copied();
        }
        for candidate in tried {
            for nanosecond in 0..=1 {
                let Ok(at) = candidate.checked_add(SignedDuration::from_nanos(nanosecond)) else {
                    continue;
                };
                if at <= now {
                    continue;
                }
                let answer = self.evaluate(path, input, at, limits)?;
                let said = part(&answer);
                if said != last {
                    last = said;
                    preview.changes.push(Change { at, answer });
                }
            }
        }
        Ok(preview)
    }
}
