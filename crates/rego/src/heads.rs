//! Heads of rules that OPA rejects and the interpreter accepts. A word alone on a line would be a rule that is true,
//! so that text which is not a policy would return no children.

use regorus::unstable::{Expr, Module, Ref, Rule, RuleHead};

use crate::error::{CompileError, Reason};
use crate::language::Language;

/// Checks the heads of these modules in that language.
pub(crate) fn check(language: Language, modules: &[Ref<Module>]) -> Vec<CompileError> {
    let rules = modules.iter().flat_map(|module| &module.policy);
    rules
        .filter_map(|rule| wrong(language, rule).map(|message| error(rule, message)))
        .collect()
}

fn wrong(language: Language, rule: &Rule) -> Option<&'static str> {
    let Rule::Spec { head, bodies, .. } = rule else {
        return None;
    };
    match head {
        RuleHead::Compr {
            refr, assign: None, ..
        } if bodies.is_empty() => match (language, refr.as_ref()) {
            (_, Expr::Var { .. }) => Some("a name alone is not a rule"),
            (Language::V1, _) => Some("a rule must have a value or a body"),
            (Language::V0, _) => None,
        },
        // In V0 `p[x]` and `p.x` are sets, and in V1 they would be objects.
        RuleHead::Set { span, refr, key } if language == Language::V1 => {
            // The span of a reference ends before its last bracket.
            let after = span.text().strip_prefix(refr.span().text());
            let after = after
                .map(|after| after.trim_start_matches(|c: char| c == ']' || c.is_whitespace()));
            let contains = after.is_some_and(|after| after.starts_with("contains"));
            (key.is_none() || !contains).then_some("`contains` is required for rules that are sets")
        }
        _ => None,
    }
}

fn error(rule: &Rule, message: &str) -> CompileError {
    let span = rule.span();
    CompileError {
        file: span.source.get_path().clone(),
        line: span.line,
        column: span.col,
        reason: Reason::Syntax,
        message: message.to_owned(),
    }
}
