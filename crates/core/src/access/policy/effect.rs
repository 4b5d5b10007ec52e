//! The effect of a judgement on a request: whether it may be granted, the required approvals, the maximum
//! duration, and whether another judgement is stricter.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::{ApprovalConfig, ApprovalRule, Name, OnCallCheck};

use super::combine::{content, missing, shorter};
use super::{ANOTHER_TEMPLATE, DENIED, Extra, FAILED, Judgement, When, seen};
use crate::access::decide::{Ask, Denial, REASON_REQUIRED};
use crate::access::request::Request;
use crate::access::{stamp, ticket};
use crate::kinds::AccessTemplate;

/// Checks whether the request may be granted according to the judgement that was sealed when it was created.
/// A request for which no access policy was evaluated has no judgement.
///
/// # Errors
/// The reason why not, and the next step.
pub fn holds<T: AccessTemplate>(
    judgement: Option<&Judgement>,
    ask: Ask<'_>,
    template: &T,
) -> Result<(), Denial> {
    permits_ask(judgement, ask)?;
    same_template(judgement, template.meta(), || seen(template))
}

/// Checks whether the template with this metadata is the one for which access policies were evaluated; `seen` returns its
/// digest as they see it.
///
/// # Errors
/// The denial, and the next step.
pub fn same_template(
    judgement: Option<&Judgement>,
    metadata: &ObjectMeta,
    seen: impl FnOnce() -> String,
) -> Result<(), Denial> {
    let judgement = judgement.filter(|judgement| judgement.asked > 0);
    if judgement.is_some_and(|judgement| judgement.template != Some(seen())) {
        let name = Name::from_metadata(metadata)?;
        let why = format!(
            "template {name} is not the one for which the AccessPolicies of the cluster were \
             evaluated when the request was created: its spec, labels or annotations were changed; \
             create the request again"
        );
        return Err(Denial::new(ANOTHER_TEMPLATE, why));
    }
    Ok(())
}

/// Checks whether an object may be granted according to the judgement that was sealed when it was created, apart from the
/// template that was judged.
///
/// # Errors
/// The reason why not, and the next step.
pub fn permits_ask(judgement: Option<&Judgement>, ask: Ask<'_>) -> Result<(), Denial> {
    not_refused(judgement, ask.reason)?;
    for rule in judgement.iter().flat_map(|judgement| &judgement.tickets) {
        let who = || format!("AccessPolicy {}", rule.policy);
        ticket::validate(Some(&rule.ticket), who, ask)?;
    }
    Ok(())
}

/// Checks that no access policy refuses.
///
/// # Errors
/// The refusal.
pub fn permits(judgement: Option<&Judgement>) -> Result<(), Denial> {
    let Some(refused) = judgement.and_then(|judgement| judgement.refused.as_ref()) else {
        return Ok(());
    };
    let reason = if refused.failed { FAILED } else { DENIED };
    Err(Denial::new(reason, refused.message.clone()))
}

/// Checks that no access policy refuses, or requires a reason that is missing.
///
/// # Errors
/// The refusal, or the missing reason.
pub fn not_refused(judgement: Option<&Judgement>, reason: Option<&str>) -> Result<(), Denial> {
    permits(judgement)?;
    if let Some(policy) = judgement.and_then(|judgement| judgement.require_reason.as_ref())
        && reason.is_none_or(|reason| reason.trim().is_empty())
    {
        let why = format!("AccessPolicy {policy} requires a reason{REASON_REQUIRED}");
        return Err(Denial::new("ReasonRequired", why));
    }
    Ok(())
}

/// Returns the required approvals: the rules of the template, unless its condition exempts the request, and
/// those of the access policies. All of them must hold; a rule that is the same as another counts with it.
#[must_use]
pub fn approval<T: AccessTemplate>(
    judgement: Option<&Judgement>,
    template: &T,
) -> Option<ApprovalConfig> {
    approval_on_call(judgement, template, &[])
}

/// Returns the approvals that stay required while these on-call checks accept the requester. The rules of the
/// template, and those of each access policy, are replaced only by their own checks.
#[must_use]
pub fn approval_on_call<T: AccessTemplate>(
    judgement: Option<&Judgement>,
    template: &T,
    accepted: &[OnCallCheck],
) -> Option<ApprovalConfig> {
    let own = own_rules(judgement, template).filter(|own| !replaces(&own.unless, accepted));
    let own = own.map(|config| ApprovalConfig {
        when: None,
        unless: Vec::new(),
        ..config.clone()
    });
    joined_on_call(own, judgement, accepted)
}

/// Returns the on-call checks of the template's rules and of each access policy, each list once. A list is
/// sufficient for its own rules if one of its checks accepts the requester.
#[must_use]
pub fn on_call_checks<'a, T: AccessTemplate>(
    judgement: Option<&'a Judgement>,
    template: &'a T,
) -> Vec<&'a [OnCallCheck]> {
    let own = own_rules(judgement, template).map(|own| own.unless.as_slice());
    let extra = judgement.and_then(|judgement| judgement.approval.as_ref());
    let added = extra.into_iter().flat_map(|extra| &extra.rules);
    let added = added.map(|rule| rule.unless.as_slice());
    let mut lists: Vec<&[OnCallCheck]> = Vec::new();
    for list in own.into_iter().chain(added) {
        if !list.is_empty() && !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists
}

/// Returns those of the rules that are not among the rules of `rest`, by their content.
pub(in crate::access) fn find_absent<'a>(
    rules: &'a [ApprovalRule],
    rest: &[ApprovalRule],
) -> Vec<&'a ApprovalRule> {
    let known: Vec<String> = rest.iter().map(content).collect();
    missing(&known, rules)
}

fn replaces(unless: &[OnCallCheck], accepted: &[OnCallCheck]) -> bool {
    unless.iter().any(|check| accepted.contains(check))
}

/// Returns the rules of the template, unless its condition exempts the request.
fn own_rules<'a, T: AccessTemplate>(
    judgement: Option<&Judgement>,
    template: &'a T,
) -> Option<&'a ApprovalConfig> {
    let own = template.config().approval.as_ref();
    let exempts = judgement.is_some_and(|judgement| {
        // Another template may have another condition.
        judgement.when == Some(When::Exempts)
            && judgement.template.as_ref() == Some(&seen(template))
    });
    own.filter(|config| !(exempts && config.when.is_some()))
}

/// Returns the required approvals for an object without a template, by the rules of the access policies.
#[must_use]
pub fn rules(judgement: Option<&Judgement>) -> Option<ApprovalConfig> {
    joined(None, judgement)
}

/// Returns the approvals that a template and the access policies require together.
#[must_use]
pub fn joined(
    own: Option<ApprovalConfig>,
    judgement: Option<&Judgement>,
) -> Option<ApprovalConfig> {
    joined_on_call(own, judgement, &[])
}

fn joined_on_call(
    own: Option<ApprovalConfig>,
    judgement: Option<&Judgement>,
    accepted: &[OnCallCheck],
) -> Option<ApprovalConfig> {
    let Some(extra) = judgement.and_then(|judgement| judgement.approval.as_ref()) else {
        return own;
    };
    let mut required = own;
    for (unless, rules) in by_checks(extra) {
        if replaces(unless, accepted) {
            continue;
        }
        let added = ApprovalConfig {
            rules,
            when: None,
            timeout: extra.timeout.clone(),
            require_reason: extra.require_reason,
            unless: Vec::new(),
        };
        required = Some(match required {
            Some(required) => both(required, &added),
            None => added,
        });
    }
    required
}

/// Returns the rules of access policies with the on-call checks that replace them, in the order of the rules.
/// Equal rules with different checks are rules of two sources.
fn by_checks(extra: &Extra) -> Vec<(&[OnCallCheck], Vec<ApprovalRule>)> {
    let mut found: Vec<(&[OnCallCheck], Vec<ApprovalRule>)> = Vec::new();
    for rule in &extra.rules {
        match found.iter_mut().find(|(unless, _)| *unless == rule.unless) {
            Some((_, rules)) => rules.push(rule.approval()),
            None => found.push((rule.unless.as_slice(), vec![rule.approval()])),
        }
    }
    found
}

/// Returns the approvals that satisfy both: all rules, each once, the shorter timeout, and a reason if one of them
/// requires it.
#[must_use]
pub fn both(mut one: ApprovalConfig, other: &ApprovalConfig) -> ApprovalConfig {
    let known: Vec<String> = one.rules.iter().map(content).collect();
    let added = missing(&known, &other.rules);
    one.rules.extend(added.into_iter().cloned());
    one.timeout = shorter(&one.timeout, &other.timeout);
    one.require_reason |= other.require_reason;
    one
}

/// Checks whether approvals of the request may be relevant, as far as its stamp shows without a key.
#[must_use]
pub fn asks<T: AccessTemplate>(request: &Request<'_>, template: &T) -> bool {
    template.config().approval.is_some() || requires_approval(request.metadata)
}

/// Checks whether access policies require approvals, as far as the stamp of an object shows without a key.
#[must_use]
pub fn requires_approval(metadata: &ObjectMeta) -> bool {
    stamp::parse_unverified(metadata)
        .and_then(|stamp| stamp.judgement)
        .is_some_and(|judgement| judgement.approval.is_some())
}

/// Returns the maximum duration of access, if access policies set one. An invalid duration counts as zero.
#[must_use]
pub fn ceiling(judgement: Option<&Judgement>) -> Option<GoDuration> {
    let longest = judgement?.longest.as_ref()?;
    Some(longest.duration.parse().unwrap_or(GoDuration::ZERO))
}

/// Returns the maximum duration of access, which is `max` without access policies.
#[must_use]
pub fn longest(judgement: Option<&Judgement>, max: GoDuration) -> GoDuration {
    ceiling(judgement).map_or(max, |ceiling| max.min(ceiling))
}

/// Returns the note about the required approvals, if the condition of the template's rules could not be
/// evaluated.
#[must_use]
pub fn note(judgement: Option<&Judgement>, approval: Option<&ApprovalConfig>) -> Option<String> {
    let why = match &judgement?.when {
        Some(When::Failed(why)) => why,
        _ => return None,
    };
    approval?;
    Some(format!(
        "failed to evaluate spec.accessConfig.approval.when of the template ({why}), so its rules \
            apply"
    ))
}

/// The respect in which a judgement is stricter than another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stricter {
    /// The request would be denied.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Access has this maximum duration.
    #[error("the maximum duration is {0} now")]
    Duration(GoDuration),
    /// This check also validates the change ticket.
    #[error("check {0} must accept its ticket now")]
    TicketCheck(String),
    /// Approvals are required.
    #[error("approvals are required now, and were not when it was created")]
    Approval,
    /// An additional rule must hold.
    #[error("rule {rule} must be met now ({policies})")]
    Rule {
        /// Name of the rule.
        rule: String,
        /// Names of the access policies that apply.
        policies: String,
    },
    /// Approvals are given within this time.
    #[error("its maximum duration by approval is {0} now")]
    Timeout(String),
    /// Approvals and denials require a reason.
    #[error("an approval requires a reason now")]
    Reason,
}

/// Returns the respect in which `new` is stricter than `sealed`, if it is: then the approved access differs
/// from the access that would be granted.
#[must_use]
pub fn stricter<T: AccessTemplate>(
    sealed: Option<&Judgement>,
    new: Option<&Judgement>,
    ask: Ask<'_>,
    template: &T,
) -> Option<Stricter> {
    let rules = |judgement: Option<&Judgement>, accepted: &[OnCallCheck]| {
        approval_on_call(judgement, template, accepted)
    };
    let known = ticket::checks(sealed, template);
    let asked = ticket::checks(new, template);
    let check = further(&known, asked).filter(|_| !ask.emergency);
    // Rules that stay while the requester is on call count, too: the grant follows the sealed checks. A new rule is
    // additional exactly if it is while all checks accept the requester but those of its own source.
    let all = on_call_checks(sealed, template).concat();
    let but = |list: &[OnCallCheck]| {
        let others = all.iter().filter(|check| !list.contains(check));
        others.cloned().collect::<Vec<_>>()
    };
    let lists = on_call_checks(new, template).into_iter();
    let cases: Vec<Vec<OnCallCheck>> = [Vec::new(), all.clone()]
        .into_iter()
        .chain(lists.map(but))
        .collect();
    let holds = holds(new, ask, template);
    compared(sealed, new, holds, (rules, &cases), check)
}

/// Returns the first check that validates the change ticket in addition to the known ones.
pub(super) fn further(known: &[String], asked: Vec<String>) -> Option<Stricter> {
    let check = asked.into_iter().find(|check| !known.contains(check));
    check.map(Stricter::TicketCheck)
}

pub(super) fn compared(
    sealed: Option<&Judgement>,
    new: Option<&Judgement>,
    holds: Result<(), Denial>,
    (rules, cases): (
        impl Fn(Option<&Judgement>, &[OnCallCheck]) -> Option<ApprovalConfig>,
        &[Vec<OnCallCheck>],
    ),
    check: Option<Stricter>,
) -> Option<Stricter> {
    if let Err(denial) = holds {
        return Some(denial.into());
    }
    let stricter = super::stricter_limit(sealed, new).or(check);
    if stricter.is_some() {
        return stricter;
    }
    cases.iter().find_map(|accepted| {
        let (before, now) = (rules(sealed, accepted), rules(new, accepted)?);
        stricter_rules(before, now, new)
    })
}

fn stricter_rules(
    before: Option<ApprovalConfig>,
    now: ApprovalConfig,
    new: Option<&Judgement>,
) -> Option<Stricter> {
    let Some(before) = before else {
        return Some(Stricter::Approval);
    };
    let added = find_absent(&now.rules, &before.rules);
    if let Some(rule) = added.first() {
        let policies = new.map(Judgement::names).into_iter().collect();
        let rule = rule.name.clone();
        return Some(Stricter::Rule { rule, policies });
    }
    if shorter(&before.timeout, &now.timeout) != before.timeout {
        return Some(Stricter::Timeout(now.timeout));
    }
    (now.require_reason && !before.require_reason).then_some(Stricter::Reason)
}
