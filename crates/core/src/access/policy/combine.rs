//! The combination of many access policies to one judgement: the strictest of each. An additional access
//! policy never makes it more lenient.

use std::fmt::Display;

use oz_api::duration::GoDuration;
use oz_api::{AccessPolicy, ApprovalRule, IdentityError, Name, PolicyApproval, encode};

use super::{
    Applied, EmergencyRule, Extra, Judgement, Longest, MAX_JUDGEMENT, MAX_POLICIES, MAX_RULES,
    MAX_TICKETS, Refused, Rule, TicketRule, When,
};
use crate::kinds::{Kind as _, Rules as _};
use crate::validate::{self, Violation};

/// The users who repair an access policy.
const MENDS: &str = "ClusterRole oz-policy-manager";

/// The result of one access policy for a request.
#[derive(Clone, Debug)]
pub struct Opinion<'a, E> {
    /// Access policy.
    pub policy: &'a AccessPolicy,
    /// Whether it matches, or why that is unknown.
    pub matched: Result<bool, E>,
}

/// Combines these access policies, and the condition of the template's own rules. `template` is the digest of
/// the template, see [`seen`](super::seen); `None` if there is none. `unreadable` is the number of further
/// access policies that cannot be read.
#[must_use]
pub fn combine<E: Display>(
    template: Option<String>,
    when: Option<Result<bool, E>>,
    opinions: &[Opinion<'_, E>],
    unreadable: usize,
) -> Judgement {
    let count = opinions.len() + unreadable;
    let mut judgement = Judgement {
        when: when.map(|when| match when {
            Ok(true) => When::Applies,
            Ok(false) => When::Exempts,
            Err(why) => When::Failed(why.to_string()),
        }),
        asked: count,
        ..Judgement::default()
    };
    if unreadable > 0 {
        refuse(&mut judgement, unread(unreadable));
    }
    if count > 0 && template.is_none() {
        // Access policies also evaluate the template's labels.
        refuse(&mut judgement, no_template());
    }
    judgement.template = template;
    if let Some(refused) = too_many(count) {
        refuse(&mut judgement, refused);
        return judgement;
    }
    let mut sorted: Vec<&Opinion<'_, E>> = opinions.iter().collect();
    sorted.sort_by_key(|opinion| opinion.policy.metadata.name.as_deref());
    for opinion in sorted {
        add(&mut judgement, opinion);
    }
    // Without terms there is no emergency, and nothing to withhold.
    if judgement
        .emergencies
        .iter()
        .all(|rule| rule.terms.is_none())
    {
        judgement.emergencies.clear();
    }
    let rules = judgement.approval.as_ref().map_or(0, |it| it.rules.len());
    let size = serde_json::to_vec(&judgement).map_or(usize::MAX, |text| text.len());
    if rules > MAX_RULES || judgement.tickets.len() > MAX_TICKETS || size > MAX_JUDGEMENT {
        let names = judgement.names();
        judgement.approval = None;
        judgement.tickets.clear();
        judgement.emergencies.clear();
        judgement.policies.clear();
        refuse(&mut judgement, too_large(&names));
    }
    judgement
}

/// Returns the refusal of all requests while there are more access policies than are evaluated.
#[must_use]
pub fn too_many(count: usize) -> Option<Refused> {
    (count > MAX_POLICIES).then(|| Refused {
        policy: String::new(),
        failed: true,
        message: format!(
            "the cluster has {count} AccessPolicies, and the maximum is {MAX_POLICIES}, so no \
             access is granted; have their authors ({MENDS}) delete some"
        ),
    })
}

fn unread(count: usize) -> Refused {
    Refused {
        policy: String::new(),
        failed: true,
        message: format!(
            "failed to read {count} AccessPolicies of the cluster, so no access is granted that \
             they might deny; have the authors of access policies ({MENDS}) delete them: the log \
             of oz-webhook names them"
        ),
    }
}

fn nameless(error: &IdentityError) -> Refused {
    Refused {
        policy: String::new(),
        failed: true,
        message: format!("failed to evaluate an AccessPolicy, so no access is granted: {error}"),
    }
}

fn no_template() -> Refused {
    Refused {
        policy: String::new(),
        failed: true,
        message: "the template does not exist, and the AccessPolicies of the cluster require it; \
                  create it first, then create the request again"
            .to_owned(),
    }
}

fn too_large(names: &str) -> Refused {
    let shown: String = names.chars().take(200).collect();
    Refused {
        policy: String::new(),
        failed: true,
        message: format!(
            "the AccessPolicies that match ({shown}) have more than {MAX_RULES} rules, \
             {MAX_TICKETS} ticket requirements, or {MAX_JUDGEMENT} bytes, which is the maximum; \
             have their authors ({MENDS}) name groups instead of users, or fewer rules"
        ),
    }
}

fn add<E: Display>(judgement: &mut Judgement, opinion: &Opinion<'_, E>) {
    let policy = opinion.policy;
    let name = match Name::from_metadata(&policy.metadata) {
        Ok(name) => name.as_str(),
        Err(error) => return refuse(judgement, nameless(&error)),
    };
    let broken = policy.violations(jiff::Timestamp::UNIX_EPOCH);
    let matched = match (&opinion.matched, broken.as_slice()) {
        (_, [_, ..]) => Err(Violation::list(&broken)),
        (Ok(matched), []) => Ok(*matched),
        (Err(why), []) => Err(why.to_string()),
    };
    match matched {
        Err(why) => return refuse(judgement, failed(name, &why)),
        Ok(false) => return,
        Ok(true) => {}
    }
    judgement.policies.push(Applied {
        name: name.to_owned(),
        digest: policy.spec_digest(),
    });
    let then = &policy.spec.then;
    if let Some(denial) = &then.deny {
        let message = format!("AccessPolicy {name} denies it: {}", denial.message.trim());
        refuse(
            judgement,
            Refused {
                policy: name.to_owned(),
                failed: false,
                message,
            },
        );
    }
    if let Some(rules) = &then.approval {
        agree(judgement, name, rules);
    }
    if then.require_reason && judgement.require_reason.is_none() {
        judgement.require_reason = Some(name.to_owned());
    }
    if let Some(ticket) = &then.require_ticket {
        let known = judgement.tickets.iter().any(|rule| rule.ticket == *ticket);
        if !known {
            judgement.tickets.push(TicketRule {
                policy: name.to_owned(),
                ticket: ticket.clone(),
            });
        }
    }
    let requires = then.approval.is_some() || then.require_ticket.is_some();
    if requires || then.emergency.is_some() {
        judgement.emergencies.push(EmergencyRule {
            policy: name.to_owned(),
            terms: then.emergency.clone(),
        });
    }
    if let Some(duration) = &then.max_duration {
        shorten(judgement, name, duration);
    }
}

fn failed(name: &str, why: &str) -> Refused {
    let why: String = why.chars().take(300).collect();
    Refused {
        policy: name.to_owned(),
        failed: true,
        message: format!(
            "failed to evaluate AccessPolicy {name} ({why}), so no access is granted that it might \
             deny; have the authors of access policies ({MENDS}) correct it, or delete it"
        ),
    }
}

/// Sets the refusal. A refusal that an administrator wrote takes precedence over one because of a mistake.
fn refuse(judgement: &mut Judgement, refused: Refused) {
    let keep = judgement.refused.as_ref();
    if keep.is_none_or(|known| known.failed && !refused.failed) {
        judgement.refused = Some(refused);
    }
}

fn agree(judgement: &mut Judgement, policy: &str, added: &PolicyApproval) {
    let config = validate::policy_rules(added);
    let extra = judgement.approval.get_or_insert_with(|| Extra {
        rules: Vec::new(),
        timeout: config.timeout.clone(),
        require_reason: false,
    });
    // A rule that other checks replace stays a rule of its own: each access policy decides about its own rules.
    let known = extra.rules.iter();
    let known = known.filter(|rule| rule.unless == config.unless);
    let known: Vec<String> = known.map(|rule| content(&rule.approval())).collect();
    for rule in missing(&known, &config.rules) {
        extra.rules.push(Rule {
            name: format!("{policy}/{}", rule.name),
            groups: rule.groups.clone(),
            users: rule.users.clone(),
            approvals: rule.approvals,
            silent: !rule.notify,
            unless: config.unless.clone(),
            escalation: rule.escalation.clone(),
        });
    }
    extra.require_reason |= config.require_reason;
    extra.timeout = shorter(&extra.timeout, &config.timeout);
}

impl Rule {
    /// Returns the rule in the form of a template's rule.
    #[must_use]
    pub fn approval(&self) -> ApprovalRule {
        ApprovalRule {
            name: self.name.clone(),
            groups: self.groups.clone(),
            users: self.users.clone(),
            approvals: self.approvals,
            notify: !self.silent,
            escalation: self.escalation.clone(),
        }
    }
}

/// Returns those of the rules that are not among `known` yet. Equal rules of one source require different
/// persons, equal rules of two sources hold together.
pub(super) fn missing<'a>(known: &[String], rules: &'a [ApprovalRule]) -> Vec<&'a ApprovalRule> {
    let mut left = known.to_vec();
    let mut missing = Vec::new();
    for rule in rules {
        let content = content(rule);
        match left.iter().position(|known| *known == content) {
            Some(at) => drop(left.swap_remove(at)),
            None => missing.push(rule),
        }
    }
    missing
}

/// Returns the content of a rule, without its name.
pub(super) fn content(rule: &ApprovalRule) -> String {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names
    };
    let (groups, users) = (sorted(&rule.groups), sorted(&rule.users));
    let mut content = vec![
        serde_json::json!(groups),
        serde_json::json!(users),
        serde_json::json!(rule.approvals.max(1)),
    ];
    // Rules with different escalations are not the same: a template must not extend the rule of an access policy.
    if let Some(further) = &rule.escalation {
        let (groups, users) = (sorted(&further.groups), sorted(&further.users));
        content.push(serde_json::json!([further.after, groups, users]));
    }
    encode::digest(&content)
}

/// Returns the shorter of two durations; an invalid one counts as zero.
pub(super) fn shorter(one: &str, other: &str) -> String {
    let length = |text: &str| text.parse::<GoDuration>().unwrap_or(GoDuration::ZERO);
    let shorter = if length(other) < length(one) {
        other
    } else {
        one
    };
    shorter.to_owned()
}

fn shorten(judgement: &mut Judgement, policy: &str, duration: &str) {
    let known = judgement.longest.as_ref();
    let is_shorter = known.is_none_or(|known| shorter(&known.duration, duration) != known.duration);
    if is_shorter {
        judgement.longest = Some(Longest {
            policy: policy.to_owned(),
            duration: duration.to_owned(),
        });
    }
}
