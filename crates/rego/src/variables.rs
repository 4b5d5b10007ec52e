//! Variables that no expression can give a value. The interpreter would report them only when it reaches one, and a
//! policy that never reaches it would return no children.
//!
//! This analysis accepts more expressions as giving a value than OPA does, so that it rejects no policy that OPA
//! accepts.

use std::collections::BTreeSet;

use regorus::unstable::{AssignOp, Expr, Literal, Module, Query, Ref, Rule, RuleHead, Span};

use crate::error::{CompileError, CompileErrors, Reason};
use crate::language::Language;
use crate::rewrite;
use crate::syntax::{self, path};
use crate::{builtins, functions};

/// Checks all modules.
pub(crate) fn check(modules: &[Ref<Module>]) -> Result<(), CompileErrors> {
    let mut errors = Vec::new();
    for (module, known) in modules.iter().zip(syntax::globals(modules)) {
        for rule in &module.policy {
            errors.extend(without_value(rule, &known));
        }
    }
    CompileErrors::all(errors)
}

fn without_value(rule: &Rule, known: &BTreeSet<&str>) -> Vec<CompileError> {
    let mut variables = Variables::default();
    variables.rule(rule);
    let Variables {
        given,
        used,
        negated,
        assigned,
    } = variables;
    let has_value = |name: &str| given.contains(name) || known.contains(name);
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for span in negated.into_iter().filter_map(name) {
        let name = span.text();
        if (name == "_" || !has_value(name)) && seen.insert(name) {
            let message = format!(
                "variable {name} is used in `not` and has no value outside of it: give it a value \
                 before, as by `some {} in …`, or write a rule for the negated expression",
                if name == "_" { "x" } else { name },
            );
            errors.push(error(span, message));
        }
    }
    for span in used.into_iter().filter_map(name) {
        let name = span.text();
        if name != "_" && !has_value(name) && seen.insert(name) {
            errors.push(error(span, format!("variable {name} has no value")));
        }
    }
    errors.extend(assigned.into_iter().map(|expr| {
        let message =
            "a `not` cannot assign a value to a variable: write `==` instead of `:=`".to_owned();
        error(expr.span(), message)
    }));
    errors
}

fn name(variable: &Expr) -> Option<&Span> {
    match variable {
        Expr::Var { span, .. } => Some(span),
        _ => None,
    }
}

fn error(span: &Span, message: String) -> CompileError {
    CompileError {
        file: span.source.get_path().clone(),
        line: span.line,
        column: span.col,
        reason: Reason::Semantics,
        message,
    }
}

/// The variables of one rule.
#[derive(Default)]
struct Variables<'a> {
    given: BTreeSet<&'a str>,
    used: Vec<&'a Expr>,
    /// The variables that a `not` uses, which gives none a value.
    negated: Vec<&'a Expr>,
    /// The negated assignments.
    assigned: Vec<&'a Expr>,
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

    /// Reads the variables in the brackets of a head, as in `name[x][y]`.
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
                Literal::Expr { expr, .. } => self.expr(expr),
                Literal::NotExpr { expr, .. } => self.not(expr),
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
                // A built-in function may replace another function.
                if !path(&with.r#as).is_some_and(|path| functions::is_builtin(&path)) {
                    self.expr(&with.r#as);
                }
            }
        }
    }

    /// Reads an expression in which a variable gets a value if it has none.
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

    fn not(&mut self, expr: &'a Expr) {
        if let Expr::AssignExpr {
            op: AssignOp::ColEq,
            ..
        } = expr
        {
            self.assigned.push(expr);
        } else if rewrite::is_call(expr) {
            for part in syntax::parts(expr) {
                self.negated(part);
            }
        } else {
            self.negated(expr);
        }
    }

    /// Reads a part of a negated expression. Calls in it are evaluated before the `not`, and comprehensions are
    /// separate bodies.
    fn negated(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Var { .. } => self.negated.push(expr),
            _ if rewrite::is_call(expr) || syntax::body(expr).is_some() => self.expr(expr),
            _ => {
                for part in syntax::parts(expr) {
                    self.negated(part);
                }
            }
        }
    }

    /// Reads a call. An additional parameter can receive its result.
    fn call(&mut self, fcn: &'a Expr, params: &'a [Ref<Expr>]) {
        let arity = path(fcn).and_then(|path| builtins::arity(&path.join("."), Language::V0));
        let arity = arity.map(usize::from);
        for (index, param) in params.iter().enumerate() {
            if arity.is_none_or(|arity| index >= arity) {
                self.pattern(param);
            } else {
                self.expr(param);
            }
        }
    }
}
