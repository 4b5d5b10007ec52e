//! The escalation of approval rules: from a time after the creation of a request on, a rule that is not satisfied has
//! additional approvers. The number of its approvals stays, and so does the assignment of persons to rules. An escalation
//! is a part of its rule, so that of a template extends no rule of an access policy.

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::{ApprovalConfig, ApprovalRule, Requester};

use super::super::person::is_listed;
use crate::lifecycle::window::{after, has_come};

/// Returns the instant from which a rule has additional approvers; `None` if it never has.
#[must_use]
pub fn escalates_at(rule: &ApprovalRule, created: Timestamp) -> Option<Timestamp> {
    let wait: GoDuration = rule.escalation.as_ref()?.after.parse().ok()?;
    Some(after(created, wait))
}

/// Checks whether a rule has additional approvers at this instant.
#[must_use]
pub fn is_escalated(rule: &ApprovalRule, created: Timestamp, at: Timestamp) -> bool {
    escalates_at(rule, created).is_some_and(|from| has_come(at, from))
}

/// Checks whether a rule names a user at this instant.
#[must_use]
pub fn is_named_at(
    rule: &ApprovalRule,
    person: &Requester,
    created: Timestamp,
    at: Timestamp,
) -> bool {
    let further = rule.escalation.as_ref();
    let further = further.filter(|_| is_escalated(rule, created, at));
    is_listed(&rule.groups, &rule.users, person)
        || further.is_some_and(|it| is_listed(&it.groups, &it.users, person))
}

/// Returns the rules with the approvers that they have at this instant.
#[must_use]
pub fn with_escalation(
    config: &ApprovalConfig,
    created: Timestamp,
    at: Timestamp,
) -> ApprovalConfig {
    let rules = config.rules.iter();
    let rules = rules.map(|rule| match is_escalated(rule, created, at) {
        true => extended(rule),
        false => rule.clone(),
    });
    ApprovalConfig {
        rules: rules.collect(),
        ..config.clone()
    }
}

/// Returns a rule with all its approvers.
#[must_use]
pub fn extended(rule: &ApprovalRule) -> ApprovalRule {
    let mut rule = rule.clone();
    if let Some(further) = rule.escalation.take() {
        for (names, further) in [
            (&mut rule.groups, further.groups),
            (&mut rule.users, further.users),
        ] {
            for name in further {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    rule
}
