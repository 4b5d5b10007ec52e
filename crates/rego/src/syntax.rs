//! The parts of a policy, as the interpreter reads it.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Module, Query, Ref, Rule, RuleHead};

/// Returns the expressions in an expression, except the name of a function that it calls, and the content of its
/// [`body`].
pub(crate) fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            items.iter().map(AsRef::as_ref).collect()
        }
        Expr::Object { fields, .. } => {
            let fields = fields.iter();
            let pairs = fields.flat_map(|(_, key, value)| [key, value]);
            pairs.map(AsRef::as_ref).collect()
        }
        Expr::ArrayCompr { term, .. } | Expr::SetCompr { term, .. } => vec![term],
        Expr::ObjectCompr { key, value, .. } => vec![key, value],
        Expr::Call { params, .. } => params.iter().map(AsRef::as_ref).collect(),
        Expr::UnaryExpr { expr, .. } => vec![expr],
        Expr::RefDot { refr, .. } => vec![refr],
        Expr::RefBrack { refr, index, .. } => vec![refr, index],
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => vec![lhs, rhs],
        Expr::Membership {
            key,
            value,
            collection,
            ..
        } => {
            let parts = key.iter().chain([value, collection]);
            parts.map(AsRef::as_ref).collect()
        }
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::Var { .. } => Vec::new(),
    }
}

/// Returns the body of a comprehension.
pub(crate) fn body(expr: &Expr) -> Option<&Query> {
    match expr {
        Expr::ArrayCompr { query, .. }
        | Expr::SetCompr { query, .. }
        | Expr::ObjectCompr { query, .. } => Some(query),
        _ => None,
    }
}

/// Returns the name of a rule, with the brackets behind it.
pub(crate) fn head(rule: &Rule) -> &Expr {
    match rule {
        Rule::Spec { head, .. } => match head {
            RuleHead::Compr { refr, .. }
            | RuleHead::Set { refr, .. }
            | RuleHead::Func { refr, .. } => refr,
        },
        Rule::Default { refr, .. } => refr,
    }
}

/// Returns the root of a reference: `a` for `a.b[c]`.
pub(crate) fn root(mut expr: &Expr) -> &Expr {
    while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = expr {
        expr = refr;
    }
    expr
}

/// Returns `data` and the path of a module.
pub(crate) fn package(module: &Module) -> Vec<String> {
    let path = path(&module.package.refr).into_iter().flatten();
    ["data".to_owned()].into_iter().chain(path).collect()
}

/// Returns the path of `a.b["c"]` as a list; `None` for any other expression.
pub(crate) fn path(expr: &Expr) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut expr = expr;
    loop {
        match expr {
            Expr::Var { span, .. } => {
                names.push(span.text().to_owned());
                names.reverse();
                return Some(names);
            }
            Expr::RefDot { refr, field, .. } => {
                names.push(field.0.text().to_owned());
                expr = refr;
            }
            Expr::RefBrack { refr, index, .. } => {
                let Expr::String { span, .. } = index.as_ref() else {
                    return None;
                };
                names.push(span.text().to_owned());
                expr = refr;
            }
            _ => return None,
        }
    }
}

/// Returns, for each module, the names that are not local variables: those of the rules of its package, of its
/// imports, `input` and `data`.
pub(crate) fn globals(modules: &[Ref<Module>]) -> Vec<BTreeSet<&str>> {
    let mut rules: BTreeMap<Vec<String>, BTreeSet<&str>> = BTreeMap::new();
    for module in modules {
        let names = module.policy.iter();
        let names = names.map(|rule| root(head(rule)).span().text());
        rules.entry(package(module)).or_default().extend(names);
    }
    let globals = modules.iter().map(|module| {
        let mut globals: BTreeSet<&str> = ["input", "data"].into();
        globals.extend(rules.get(&package(module)).into_iter().flatten());
        for import in &module.imports {
            globals.extend(match (&import.r#as, import.refr.as_ref()) {
                (Some(alias), _) => Some(alias.text()),
                (None, Expr::RefDot { field, .. }) => Some(field.0.text()),
                (None, Expr::RefBrack { index, .. }) => match index.as_ref() {
                    Expr::String { span, .. } => Some(span.text()),
                    _ => None,
                },
                _ => None,
            });
        }
        globals
    });
    globals.collect()
}
