//! The rules of a hook to register at one moment: the hook's own, and those that it follows.

use crate::{
    hook::{Hook, HookKind},
    review::Operation,
    rules::{MAX_RULES, ResourceRule},
};

/// The rules of a hook at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RulesNow {
    /// The rules to register; without rules, no webhook is registered.
    Known(Vec<ResourceRule>),
    /// The registered rules stay unchanged: the rules are not known yet, or there are too many.
    Unknown {
        /// The cause: `true` if there are too many rules.
        too_many: bool,
    },
}

impl RulesNow {
    pub(crate) fn from_hook(hook: &Hook) -> Self {
        let mut rules = hook.rules.clone();
        if let Some(followed) = &hook.followed {
            let Some(mut followed) = followed.current_rules() else {
                return Self::Unknown { too_many: false };
            };
            followed.retain(|rule| {
                let problem = problem(hook, rule);
                if let Some(problem) = problem {
                    tracing::warn!(hook = hook.name, ?rule, problem, "left a rule out");
                }
                problem.is_none()
            });
            if followed.len() > MAX_RULES {
                return Self::Unknown { too_many: true };
            }
            rules.extend(followed);
        }
        Self::Known(rules)
    }
}

/// Returns the reason for which an API server, or the hook, would reject a rule that was set at run time.
fn problem(hook: &Hook, rule: &ResourceRule) -> Option<&'static str> {
    let is_name = |text: &str, more: &str| {
        let plain =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || more.contains(c);
        text == "*" || !text.is_empty() && text.chars().all(plain)
    };
    let operations = rule.operations.as_ref().unwrap_or(&hook.operations);
    let subresources = &rule.subresources;
    if !rule.group.is_empty() && !is_name(&rule.group, ".") {
        Some("its group is not a DNS name")
    } else if !is_name(&rule.version, "") {
        Some("its version is not a DNS label")
    } else if !is_name(&rule.plural, ".") {
        Some("its plural is not a DNS label")
    } else if !subresources.iter().all(|it| is_name(it, ""))
        || subresources.len() > 1 && subresources.iter().any(|it| it == "*")
    {
        Some("its subresources are not DNS labels, or have * together with others")
    } else if operations.is_empty() {
        Some("it has no operations")
    } else if hook.kind == HookKind::Mutating && operations.contains(&Operation::Delete) {
        Some("a mutating hook cannot be on DELETE")
    } else {
        None
    }
}

#[cfg(test)]
#[path = "registered_rules_tests.rs"]
mod tests;
