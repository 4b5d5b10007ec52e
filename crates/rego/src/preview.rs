//! The instants at which an answer changes: found by evaluation at candidate instants.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::error::EvaluateError;
use crate::evaluate::{Answer, Limits};
use crate::policy::Policy;

/// The maximum number of instants that are tried, the earliest first.
pub const MAX_INSTANTS: usize = 32;

/// An answer, and the instant from which it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The first nanosecond at which this is the answer.
    pub at: Timestamp,
    /// The answer from then on.
    pub answer: Answer,
}

/// The current answer of a policy, and its later answers if only the time changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The answer now.
    pub now: Answer,
    /// The later results, in the order of time. No two consecutive results are the same.
    pub changes: Vec<Change>,
    /// The last instant that was tried, if there were more: there may be later changes. Evaluate again at this
    /// instant.
    pub tried_until: Option<Timestamp>,
}

impl Preview {
    /// Returns the instant of the next evaluation.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let change = self.changes.first().map(|change| change.at);
        change.or(self.tried_until)
    }
}

impl Policy {
    /// Evaluates the policy now, at each of these instants (in the order of time, from now on), and one nanosecond
    /// after each. `part` returns the part of an answer to compare: a part that contains the current time always
    /// differs.
    ///
    /// # Errors
    /// The same as for [`Policy::evaluate`].
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
