//! Variables that nothing can give a value. The interpreter would say so only when it comes to one, and a policy that
//! never comes to it would say that nothing is wanted.
//!
//! What counts here as giving a value is more than what counts for OPA, so that nothing is refused that OPA takes.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, BUILTINS, Expr, Literal, Module, Query, Ref, Rule, RuleHead};

use crate::error::{CompileError, CompileErrors, Reason};
use crate::syntax::{self, head, package, path, root};

/// Reads all modules.
pub(crate) fn check(modules: &[Ref<Module>]) -> Result<(), CompileErrors> {
    let mut rules: BTreeMap<Vec<String>, BTreeSet<&str>> = BTreeMap::new();
    for module in modules {
        let names = module
            .policy
            .iter()
            .map(|rule| root(head(rule)).span().text());
        rules.entry(package(module)).or_default().extend(names);
    }
    let mut errors = Vec::new();
    for module in modules {
        let mut known: BTreeSet<&str> = ["input", "data", "_"].into();
        known.extend(rules.get(&package(module)).into_iter().flatten());
        for import in &module.imports {
            known.extend(match (&import.r#as, import.refr.as_ref()) {
                (Some(alias), _) => Some(alias.text()),
                (None, Expr::RefDot { field, .. }) => Some(field.0.text()),
                (None, Expr::RefBrack { index, .. }) => match index.as_ref() {
                    Expr::String { span, .. } => Some(span.text()),
                    _ => None,
                },
                _ => None,
            });
        }
        for rule in &module.policy {
            errors.extend(without_value(rule, &known));
        }
    }
    CompileErrors::all(errors)
}

fn without_value(rule: &Rule, known: &BTreeSet<&str>) -> Vec<CompileError> {
    let mut variables = Variables::default();
    variables.rule(rule);
    let Variables { given, used } = variables;
    let mut seen = BTreeSet::new();
    used.into_iter()
        .filter_map(|variable| match variable {
            Expr::Var { span, .. } => Some(span),
            _ => None,
        })
        .filter(|span| !given.contains(span.text()) && !known.contains(span.text()))
        .filter(|span| seen.insert(span.text().to_owned()))
        .map(|span| CompileError {
            file: span.source.get_path().clone(),
            line: span.line,
            column: span.col,
            reason: Reason::Semantics,
            message: format!("nothing gives variable {} a value", span.text()),
        })
        .collect()
}

/// The variables of one rule.
#[derive(Default)]
struct Variables<'a> {
    given: BTreeSet<&'a str>,
    used: Vec<&'a Expr>,
}

impl<'a> Variables<'a> {
    fn rule(&mut self, rule: &'a Rule) {
        let Rule::Spec { head, bodies, .. } = rule else {
            return;
        };
        match head {
            RuleHead::Compr { refr, assign, .. } => {
                self.members(refr);
                assign.iter().for_each(|assign| self.expr(&assign.value));
            }
            RuleHead::Set { refr, key, .. } => {
                self.members(refr);
                key.iter().for_each(|key| self.expr(key));
            }
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                self.members(refr);
                args.iter().for_each(|arg| self.pattern(arg));
                assign.iter().for_each(|assign| self.expr(&assign.value));
            }
        }
        for body in bodies {
            body.assign
                .iter()
                .for_each(|assign| self.expr(&assign.value));
            self.query(&body.query);
        }
    }

    /// Of `name[x][y]` in a head, those in brackets.
    fn members(&mut self, refr: &'a Expr) {
        match refr {
            Expr::RefDot { refr, .. } => self.members(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.members(refr);
                self.expr(index);
            }
            _ => {}
        }
    }

    fn query(&mut self, query: &'a Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key,
                    value,
                    collection,
                    ..
                } => {
                    key.iter().for_each(|key| self.pattern(key));
                    self.pattern(value);
                    self.expr(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every {
                    key,
                    value,
                    domain,
                    query,
                    ..
                } => {
                    self.given.extend(key.iter().map(|key| key.text()));
                    self.given.insert(value.text());
                    self.expr(domain);
                    self.query(query);
                }
            }
            for with in &statement.with_mods {
                self.expr(&with.r#as);
            }
        }
    }

    /// Where a variable is given a value if it has none.
    fn pattern(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Var { span, .. } => {
                self.given.insert(span.text());
            }
            Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
                for part in syntax::parts(expr) {
                    self.pattern(part);
                }
            }
            _ => self.expr(expr),
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Var { .. } => self.used.push(expr),
            Expr::Call { fcn, params, .. } => self.call(fcn, params),
            Expr::RefBrack { refr, index, .. } => {
                self.expr(refr);
                self.pattern(index);
            }
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                self.pattern(lhs);
                match op {
                    AssignOp::Eq => self.pattern(rhs),
                    AssignOp::ColEq => self.expr(rhs),
                }
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                key.iter().for_each(|key| self.pattern(key));
                self.pattern(value);
                self.expr(collection);
            }
            _ => {
                for part in syntax::parts(expr) {
                    self.expr(part);
                }
                if let Some(body) = syntax::body(expr) {
                    self.query(body);
                }
            }
        }
    }

    /// The result of a call may be one more parameter.
    fn call(&mut self, fcn: &'a Expr, params: &'a [Ref<Expr>]) {
        let builtin = path(fcn).and_then(|path| BUILTINS.get(path.join(".").as_str()).copied());
        let arity = builtin.map(|(_, arity)| usize::from(arity));
        for (index, param) in params.iter().enumerate() {
            if arity.is_none_or(|arity| index >= arity) {
                self.pattern(param);
            } else {
                self.expr(param);
            }
        }
    }
}
