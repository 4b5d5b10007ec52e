//! Validation of AccessPolicies without their evaluation, and of approval rules that cannot be satisfied.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{
    AccessConfig, AccessPolicySpec, ApprovalConfig, DEFAULT_APPROVAL_TIMEOUT, PolicyApproval,
};

use super::text::{expression, is_deceptive};
use super::{Found, Violation, approval, emergency, name, ticket};
use crate::access::approval::matching;

/// The maximum length of the message of a denial, in bytes.
const MAX_MESSAGE: usize = 512;
/// The maximum length of a name, since names appear in messages and before the names of rules.
const MAX_NAME: usize = 63;

/// Returns the violations of an access policy that are detectable without its evaluation.
#[must_use]
pub fn policy(metadata: &ObjectMeta, spec: &AccessPolicySpec) -> Vec<Violation> {
    let mut found = Found::default();
    check_name(metadata, &mut found);
    expression("spec.match", &spec.r#match, &mut found);
    if let Some(zone) = &spec.time_zone {
        let letters = |letter: char| letter.is_ascii_alphanumeric() || "/_+-".contains(letter);
        let wrong = zone.is_empty() || zone.len() > 64 || !zone.chars().all(letters);
        let known = if wrong {
            Err("must be the name of a time zone, as in Europe/Berlin")
        } else {
            Ok(())
        };
        found.check("spec.timeZone", zone, known);
    }
    let then = &spec.then;
    if let Some(denial) = &then.deny {
        message(&denial.message, &mut found);
    }
    if let Some(rules) = &then.approval {
        let config = config(rules);
        approval::check_at("spec.then.approval", &config, &mut found);
    }
    if let Some(config) = &then.require_ticket {
        ticket::check("spec.then.requireTicket", config, &mut found);
    }
    if let Some(config) = &then.emergency {
        emergency::check("spec.then.emergency", config, &mut found);
    }
    if let Some(longest) = &then.max_duration {
        let field = "spec.then.maxDuration";
        let parsed = found.duration(field, longest);
        if parsed.is_some_and(|longest| !longest.is_positive()) {
            found.check(field, longest, Err::<(), _>("must be greater than zero"));
        }
    }
    if *then == Default::default() {
        found.add("spec.then", "must have an effect, such as deny or approval");
    }
    found.0
}

/// Converts the rules of an access policy into those of a template.
pub(crate) fn config(rules: &PolicyApproval) -> ApprovalConfig {
    let timeout = rules.timeout.clone();
    ApprovalConfig {
        rules: rules.rules.clone(),
        when: None,
        timeout: timeout.unwrap_or_else(|| DEFAULT_APPROVAL_TIMEOUT.to_owned()),
        require_reason: rules.require_reason,
        unless: rules.unless.clone(),
    }
}

fn check_name(metadata: &ObjectMeta, found: &mut Found) {
    let names = [&metadata.name, &metadata.generate_name];
    let name = names.into_iter().flatten().find(|name| !name.is_empty());
    let Some(name) = name else {
        return;
    };
    if name.len() > MAX_NAME {
        let message = format!("must be at most {MAX_NAME} characters");
        found.check("metadata.name", name, Err::<(), _>(message));
    }
    if metadata.name.as_ref() == Some(name) {
        found.check("metadata.name", name, name::dns_subdomain(name));
    }
}

/// Checks the message of a denial, which the denied requester reads in terminals and logs.
fn message(text: &str, found: &mut Found) {
    let field = "spec.then.deny.message";
    if text.trim().is_empty() {
        found.add(
            field,
            "must state the reason, and an alternative: the requester reads it",
        );
    }
    if text.len() > MAX_MESSAGE {
        found.add(field, format!("must be at most {MAX_MESSAGE} bytes"));
    }
    let hidden = |letter: char| is_deceptive(letter) && letter != '\n';
    if text.chars().any(hidden) {
        found.add(
            field,
            "must not contain control characters, or characters that change the direction of text",
        );
    }
}

/// Returns the rule of a template that no permitted requester can satisfy, or that some of them cannot
/// satisfy, and the reason; the field is that of the rule.
#[must_use]
pub fn unsatisfiable(access: &AccessConfig) -> Option<Violation> {
    let config = access.approval.as_ref()?;
    let field = |index: usize| format!("spec.accessConfig.approval.rules[{index}]");
    if let Some(index) = matching::unsatisfiable(&config.rules) {
        let message = "can never be met: each user counts for one rule, and the users that the \
                       rules name are too few";
        return Some(Violation::new(field(index), message));
    }
    // The requester counts for no rule. The members of groups are unknown, the named users are known.
    if !access.allowed_groups.is_empty() {
        return None;
    }
    let askers: BTreeSet<&String> = access.allowed_users.iter().collect();
    let stuck: Vec<(&String, usize)> = askers
        .into_iter()
        .filter_map(|user| {
            let mut rules = config.rules.clone();
            for rule in &mut rules {
                rule.users.retain(|name| name != user);
                if let Some(further) = &mut rule.escalation {
                    further.users.retain(|name| name != user);
                }
            }
            Some((user, matching::unsatisfiable(&rules)?))
        })
        .collect();
    let (first, index) = stuck.first()?;
    let message = format!(
        "can never be met for {first}, an allowed user: requesters cannot approve their own \
         requests, and the other users are too few"
    );
    Some(Violation::new(field(*index), message))
}
