//! Validation of `spec.accessConfig.approval`, of the same field in an access policy, and of the resulting
//! approvals.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::{AccessRequestApprovalSpec, ApprovalConfig, Escalation, OnCallCheck};

use super::request::own_name;
use super::text::{expression, undisguised};
use super::{Found, Violation, name};
use crate::access::approval::matching;

/// The maximum number of rules of a template.
const MAX_RULES: usize = 8;
/// The maximum number of approvals that a rule can require.
const MAX_APPROVALS: i32 = 8;
/// The maximum number of on-call checks of one list.
const MAX_CHECKS: usize = 8;
/// The maximum time for which a request can wait for approvals.
const MAX_TIMEOUT: GoDuration = GoDuration::from_secs(7 * 24 * 60 * 60);

const FIELD: &str = "spec.accessConfig.approval";

/// Adds the violations of the approval rules of a template.
pub(super) fn check(config: &ApprovalConfig, found: &mut Found) {
    if let Some(when) = &config.when {
        expression(&format!("{FIELD}.when"), when, found);
    }
    check_at(FIELD, config, found);
}

/// Returns the violations of the approval rules in the field at `place` of a kind without conditions.
#[must_use]
pub fn unconditional_approval(place: &str, config: &ApprovalConfig) -> Vec<Violation> {
    let mut found = Found::default();
    if config.when.is_some() {
        found.add(
            &format!("{place}.when"),
            "is not supported here: the rules apply to every object; remove it",
        );
    }
    if !config.unless.is_empty() {
        found.add(
            &format!("{place}.unless"),
            "is not supported here: on-call checks replace approvals of access requests only; remove it",
        );
    }
    check_at(place, config, &mut found);
    found.0
}

/// Returns the violations that valid approval rules of two sources have only together: the shorter timeout, and users in
/// rules of both. The names of the rules may contain their source, and no maximum limits their number.
#[must_use]
pub fn joined_approval(place: &str, config: &ApprovalConfig) -> Vec<Violation> {
    let mut found = Found::default();
    for (index, rule) in config.rules.iter().enumerate() {
        if let Some(further) = &rule.escalation {
            let field = format!("{place}.rules[{index}].escalation");
            escalation(&field, further, config, &mut found);
        }
    }
    satisfiable(place, config, &mut found);
    found.0
}

/// Adds the violations of the approval rules in this field.
pub(super) fn check_at(place: &str, config: &ApprovalConfig, found: &mut Found) {
    let before = found.0.len();
    let field = format!("{place}.rules");
    match config.rules.len() {
        0 => found.add(
            &field,
            "must name at least one rule; omit approval to require none",
        ),
        1..=MAX_RULES => {}
        _ => found.add(&field, format!("must be at most {MAX_RULES} rules")),
    }
    for (index, rule) in config.rules.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let named = format!("{field}.name");
        found.check(&named, &rule.name, name::dns_label(&rule.name));
        let earlier = &config.rules[..index];
        if earlier.iter().any(|other| other.name == rule.name) {
            found.check(&named, &rule.name, Err::<(), _>("must not be named twice"));
        }
        for (list, names) in [("groups", &rule.groups), ("users", &rule.users)] {
            for (at, name) in names.iter().enumerate() {
                if name.trim().is_empty() {
                    found.add(&format!("{field}.{list}[{at}]"), "must not be empty");
                }
            }
        }
        if rule.groups.is_empty() && rule.users.is_empty() {
            found.add(&field, "must name at least one group or user");
        }
        if !(1..=MAX_APPROVALS).contains(&rule.approvals) {
            let message = format!("must be from 1 to {MAX_APPROVALS}");
            let field = format!("{field}.approvals");
            found.check(&field, rule.approvals.to_string(), Err::<(), _>(message));
        }
        if let Some(further) = &rule.escalation {
            escalation(&format!("{field}.escalation"), further, config, found);
        }
    }
    timeout(place, config, found);
    on_call(place, &config.unless, found);
    if found.0.len() == before {
        satisfiable(place, config, found);
    }
}

fn satisfiable(place: &str, config: &ApprovalConfig, found: &mut Found) {
    if let Some(index) = matching::unsatisfiable(&config.rules) {
        found.add(
            &format!("{place}.rules[{index}]"),
            "can never be met: each user counts for one rule, and the users that the rules name \
                are too few",
        );
    }
}

fn timeout(place: &str, config: &ApprovalConfig, found: &mut Found) {
    let field = format!("{place}.timeout");
    let text = config.timeout.as_str();
    let Some(timeout) = found.duration(&field, text) else {
        return;
    };
    let wrong = if !timeout.is_positive() {
        "must be greater than zero".to_owned()
    } else if timeout > MAX_TIMEOUT {
        format!("must be at most {MAX_TIMEOUT}")
    } else {
        return;
    };
    found.check(&field, text, Err::<(), _>(wrong));
}

fn escalation(field: &str, further: &Escalation, config: &ApprovalConfig, found: &mut Found) {
    for (list, names) in [("groups", &further.groups), ("users", &further.users)] {
        for (at, name) in names.iter().enumerate() {
            if name.trim().is_empty() {
                found.add(&format!("{field}.{list}[{at}]"), "must not be empty");
            }
        }
    }
    if further.groups.is_empty() && further.users.is_empty() {
        found.add(field, "must name at least one group or user");
    }
    let field = format!("{field}.after");
    let Some(wait) = found.duration(&field, &further.after) else {
        return;
    };
    let timeout: Result<GoDuration, _> = config.timeout.parse();
    if !wait.is_positive() {
        let message = "must be greater than zero";
        found.check(&field, &further.after, Err::<(), _>(message));
    } else if timeout.is_ok_and(|timeout| wait >= timeout) {
        let message = "must be shorter than the timeout of the approvals";
        found.check(&field, &further.after, Err::<(), _>(message));
    }
}

fn on_call(place: &str, checks: &[OnCallCheck], found: &mut Found) {
    let field = format!("{place}.unless");
    if checks.len() > MAX_CHECKS {
        found.add(&field, format!("must be at most {MAX_CHECKS} checks"));
    }
    for (index, check) in checks.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let name = &check.check;
        found.check(&format!("{field}.check"), name, name::dns_label(name));
        if check
            .group
            .as_deref()
            .is_some_and(|group| group.trim().is_empty())
        {
            let message = "must not be empty: omit it for any requester";
            found.add(&format!("{field}.group"), message);
        }
        if checks[..index].contains(check) {
            found.check(&field, name, Err::<(), _>("must not be named twice"));
        }
    }
}

/// Returns the violations of an approval that are detectable from the object alone.
#[must_use]
pub fn approval(metadata: &ObjectMeta, spec: &AccessRequestApprovalSpec) -> Vec<Violation> {
    let mut found = Found::default();
    own_name(metadata, &mut found);
    let reference = &spec.access_request_ref;
    let field = "spec.accessRequestRef.name";
    found.check(field, &reference.name, name::dns_subdomain(&reference.name));
    if reference.uid.trim().is_empty() {
        found.add(
            "spec.accessRequestRef.uid",
            "must be the UID of the request",
        );
    }
    if spec.digest.trim().is_empty() {
        found.add(
            "spec.digest",
            "must be the value of status.approval.digest of the request",
        );
    }
    if let Some(reason) = &spec.reason {
        undisguised("spec.reason", reason, &mut found);
    }
    found.0
}
