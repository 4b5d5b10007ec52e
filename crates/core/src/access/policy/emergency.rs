//! Emergencies of objects without a template, such as transient bindings: the terms of all access policies that decide
//! about them, combined to the strictest of each.

use std::collections::BTreeSet;

use oz_api::duration::GoDuration;
use oz_api::{Requester, Reviewers};

use super::{EmergencyRule, Judgement};
use crate::access::denial::Denial;
use crate::access::emergency::{Terms, permitted};

/// Returns the terms of an emergency of this user: the shortest durations, the smallest number of unreviewed
/// emergencies, and the reviewers that all access policies name.
///
/// # Errors
/// The denial, if an access policy that decides about it does not permit it to this user.
pub fn emergency_terms(
    judgement: Option<&Judgement>,
    requester: &Requester,
) -> Result<Terms, Denial> {
    let rules = judgement.map_or(&[][..], |judgement| &judgement.emergencies);
    let all = deciders(rules);
    let mut combined: Option<Terms> = None;
    for rule in rules {
        let source = format!("AccessPolicy {}", rule.policy);
        let Some(config) = &rule.terms else {
            return Err(none_by(&source, "does not permit"));
        };
        permitted(requester, &source, config)?;
        let terms = Terms::from_source(all.clone(), config).ok_or_else(|| invalid(&source))?;
        combined = Some(match &combined {
            Some(known) => stricter(known, &terms),
            None => terms,
        });
    }
    let terms = combined.ok_or_else(|| none_by("no AccessPolicy", "permits"))?;
    if terms.reviewers == Reviewers::default() {
        return Err(no_reviewers(&all));
    }
    Ok(terms)
}

/// Returns the maximum duration of an emergency by all access policies; `None` if none permits one. An invalid duration
/// counts as zero.
#[must_use]
pub fn emergency_longest(judgement: Option<&Judgement>) -> Option<GoDuration> {
    let rules = judgement.map_or(&[][..], |judgement| &judgement.emergencies);
    let terms = rules.iter().filter_map(|rule| rule.terms.as_ref());
    let durations = terms.map(|terms| terms.max_duration.parse().unwrap_or(GoDuration::ZERO));
    durations.min()
}

/// Names the access policies that decide about emergencies, in words.
fn deciders(rules: &[EmergencyRule]) -> String {
    let names: Vec<&str> = rules.iter().map(|rule| rule.policy.as_str()).collect();
    format!("AccessPolicy {}", names.join(", "))
}

/// Combines two terms of one source to the stricter of each. A reviewer is a name that both have: a user who is in a group
/// of the one and in another group of the other is not among them.
fn stricter(one: &Terms, other: &Terms) -> Terms {
    Terms {
        source: one.source.clone(),
        longest: one.longest.min(other.longest),
        within: one.within.min(other.within),
        reviewers: Reviewers {
            groups: both(&one.reviewers.groups, &other.reviewers.groups),
            users: both(&one.reviewers.users, &other.reviewers.users),
        },
        most: one.most.min(other.most),
    }
}

/// Returns the names that are in both lists.
fn both(one: &[String], other: &[String]) -> Vec<String> {
    let known: BTreeSet<&String> = other.iter().collect();
    one.iter()
        .filter(|name| known.contains(name))
        .cloned()
        .collect()
}

fn none_by(source: &str, permits: &str) -> Denial {
    let why = format!(
        "{source} {permits} an emergency of it; create it without spec.emergency, or have the authors of access \
         policies set spec.then.emergency"
    );
    Denial::new("EmergencyAccessDisabled", why)
}

fn invalid(source: &str) -> Denial {
    let why = format!(
        "spec.then.emergency of {source} is invalid; have the authors of access policies correct it"
    );
    Denial::new("EmergencyConfigInvalid", why)
}

fn no_reviewers(sources: &str) -> Denial {
    let why = format!(
        "{sources} name no reviewer in common for emergencies; create it without spec.emergency, or have the authors \
         of access policies name a common group in spec.then.emergency.review"
    );
    Denial::new("EmergencyConfigInvalid", why)
}
