//! The condition of a grant that is an emergency.

use oz_api::conditions;

use super::super::status::Fact;
use super::{Emergency, reviewers_named};

/// Returns the condition that a grant is an emergency.
#[must_use]
pub fn fact(emergency: &Emergency) -> Fact {
    let message = format!(
        "EMERGENCY: granted without an approval; to be reviewed until {} by {}",
        emergency.due_at,
        reviewers_named(&emergency.reviewers)
    );
    Fact {
        reason: "GrantedWithoutApproval",
        ..Fact::holds(conditions::EMERGENCY, message)
    }
}
