//! On-call checks in the decision about a request: `unless` of approval rules names checks, and a check that accepts
//! the requester replaces the approvals that the same template or access policy requires. The grant seals these
//! checks ([`OnCall`]); they run before the grant and while access lasts ([`stage`]).
//!
//! See docs/adr/0049-an-on-call-check-replaces-only-its-own-approvals.md.

mod stage;

use oz_api::OnCallCheck;
use serde::{Deserialize, Serialize};

pub use stage::{ON_CALL, WAITING, replaceable};
pub(super) use stage::{Responses, ended, keep, responses, wait};

/// The on-call checks that replaced approvals of a grant, as it seals them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnCall {
    /// The checks, which must all accept the requester while access lasts.
    pub checks: Vec<OnCallCheck>,
    /// The approval rules that they replaced, by their names.
    pub rules: Vec<String>,
}

impl OnCall {
    /// Describes the replaced approvals and the checks, in words.
    #[must_use]
    pub fn message(&self) -> String {
        format!(
            "approval by {} is replaced: the requester is on call by {}",
            self.rules.join(", "),
            self.names()
        )
    }

    /// Lists the checks in words.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<String> = self.checks.iter().map(short_name).collect();
        names.join(", ")
    }
}

/// Names a check in messages.
fn name(check: &OnCallCheck) -> String {
    format!("on-call check {}", short_name(check))
}

fn short_name(check: &OnCallCheck) -> String {
    match &check.group {
        Some(group) => format!("{} of group {group}", check.check),
        None => check.check.clone(),
    }
}
