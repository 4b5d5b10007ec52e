//! The variables that a comprehension or an `every` declares, although the rule has the same name outside: OPA gives
//! them names of their own, and the interpreter would mistake one for the other.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, Expr, Literal, Query, Rule, RuleHead};

use crate::syntax;

/// The number of places at which names appear as variables.
pub(crate) type Counts<'a> = BTreeMap<&'a str, usize>;

/// Counts the variables of a rule.
pub(crate) fn of_rule(rule: &Rule) -> Counts<'_> {
    let mut counts = Counts::new();
    let Rule::Spec { head, bodies, .. } = rule else {
        return counts;
    };
    let (refr, parts, assign) = match head {
        RuleHead::Compr { refr, assign, .. } => (refr, [].as_slice(), assign.as_ref()),
        RuleHead::Func {
            refr, args, assign, ..
        } => (refr, args.as_slice(), assign.as_ref()),
        RuleHead::Set { refr, key, .. } => (refr, key.as_slice(), None),
    };
    expr(refr, &mut counts);
    parts.iter().for_each(|part| expr(part, &mut counts));
    let assigned = bodies.iter().filter_map(|body| body.assign.as_ref());
    for assign in assign.into_iter().chain(assigned) {
        expr(&assign.value, &mut counts);
    }
    bodies
        .iter()
        .for_each(|body| query(&body.query, &mut counts));
    counts
}

/// Counts the variables of an expression.
pub(crate) fn of_expr(of: &Expr) -> Counts<'_> {
    let mut counts = Counts::new();
    expr(of, &mut counts);
    counts
}

/// Counts the variables of an `every`, except those of its domain.
pub(crate) fn of_every<'a>(names: &[&'a str], body: &'a Query) -> Counts<'a> {
    let mut counts = Counts::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    query(body, &mut counts);
    counts
}

fn expr<'a>(expr_of: &'a Expr, counts: &mut Counts<'a>) {
    if let Expr::Var { span, .. } = expr_of {
        *counts.entry(span.text()).or_default() += 1;
    }
    for part in syntax::parts(expr_of) {
        expr(part, counts);
    }
    if let Some(body) = syntax::body(expr_of) {
        query(body, counts);
    }
}

fn query<'a>(body: &'a Query, counts: &mut Counts<'a>) {
    for statement in &body.stmts {
        match &statement.literal {
            Literal::SomeVars { vars, .. } => {
                for name in vars {
                    *counts.entry(name.text()).or_default() += 1;
                }
            }
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                for part in key.iter().chain([value, collection]) {
                    expr(part, counts);
                }
            }
            Literal::Expr { expr: part, .. } | Literal::NotExpr { expr: part, .. } => {
                expr(part, counts);
            }
            Literal::Every {
                key,
                value,
                domain,
                query: body,
                ..
            } => {
                for name in key.iter().chain([value]) {
                    *counts.entry(name.text()).or_default() += 1;
                }
                expr(domain, counts);
                query(body, counts);
            }
        }
        for with in &statement.with_mods {
            expr(&with.r#as, counts);
        }
    }
}

/// Returns the names that a body declares, by `some` or `:=`.
pub(crate) fn declared(body: &Query) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for statement in &body.stmts {
        match &statement.literal {
            Literal::SomeVars { vars, .. } => names.extend(vars.iter().map(|name| name.text())),
            Literal::SomeIn { key, value, .. } => {
                for part in key.iter().chain([value]) {
                    pattern(part, &mut names);
                }
            }
            Literal::Expr { expr, .. } => {
                if let Expr::AssignExpr {
                    op: AssignOp::ColEq,
                    lhs,
                    ..
                } = expr.as_ref()
                {
                    pattern(lhs, &mut names);
                }
            }
            Literal::NotExpr { .. } | Literal::Every { .. } => {}
        }
    }
    names.remove("_");
    names
}

fn pattern<'a>(expr: &'a Expr, names: &mut BTreeSet<&'a str>) {
    match expr {
        Expr::Var { span, .. } => {
            names.insert(span.text());
        }
        Expr::Array { .. } | Expr::Object { .. } => {
            for part in syntax::parts(expr) {
                pattern(part, names);
            }
        }
        _ => {}
    }
}
