//! The arguments of a `not`. OPA's compiler evaluates them before the `not`: `not f(x.a)` means `v = x.a; not f(v)`, so
//! that an argument without a value leaves the statement undefined. The interpreter evaluates them inside of the `not`,
//! where the same argument makes the statement true, and a policy that grants nothing on OPA would grant here.
//! So a module is rewritten as OPA's compiler does before it is interpreted.
//!
//! The interpreter takes texts only. An argument moves to the front of its own statement, with its line breaks, and all
//! other lines keep their numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use regorus::unstable::{
    BoolOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleHead, Span,
};

use crate::syntax::{self, path, root};

/// The modules as the interpreter is to read them, if that differs from what was written. `parsed` are the same
/// modules, in the same order.
pub(crate) fn rewrite(
    modules: &[(String, String)],
    parsed: &[Ref<Module>],
) -> Option<Vec<(String, String)>> {
    let mut prefix = "__not".to_owned();
    while modules.iter().any(|(_, text)| text.contains(&prefix)) {
        prefix.push('_');
    }
    let globals = syntax::globals(parsed);
    let mut changed = false;
    let rewritten = modules.iter().zip(parsed).zip(&globals);
    let rewritten = rewritten.map(|(((name, text), module), globals)| {
        let mut rewriter = Rewriter {
            text,
            globals,
            prefix: &prefix,
            count: 0,
        };
        let mut edits = Vec::new();
        for rule in &module.policy {
            rewriter.rule(rule, &mut edits);
        }
        changed |= !edits.is_empty();
        (name.clone(), rewriter.edited(0..text.len(), edits))
    });
    let rewritten = rewritten.collect();
    changed.then_some(rewritten)
}

/// The parts of a negated expression that have values of their own before the `not`.
pub(crate) fn arguments<'e>(expr: &'e Expr, globals: &BTreeSet<&str>) -> Vec<&'e Expr> {
    let mut found = Vec::new();
    match expr {
        // As OPA has it, `not x.a == 1` is true where there is no `x.a`.
        Expr::AssignExpr { lhs, rhs, .. }
        | Expr::BoolExpr {
            op: BoolOp::Eq,
            lhs,
            rhs,
            ..
        } => {
            evaluated_inside(lhs, globals, &mut found);
            evaluated_inside(rhs, globals, &mut found);
        }
        _ if is_call(expr) => {
            for part in syntax::parts(expr) {
                evaluated_before(part, globals, &mut found);
            }
        }
        _ => evaluated_inside(expr, globals, &mut found),
    }
    found
}

/// Whether an expression is a call of a function or an operator, which is one to OPA.
pub(crate) fn is_call(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Call { .. }
            | Expr::UnaryExpr { .. }
            | Expr::BinExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::ArithExpr { .. }
            | Expr::AssignExpr { .. }
            | Expr::Membership { .. }
    )
}

/// Of an operand that may be undefined: what is in the brackets of a reference, and calls.
fn evaluated_inside<'e>(expr: &'e Expr, globals: &BTreeSet<&str>, found: &mut Vec<&'e Expr>) {
    match expr {
        Expr::RefDot { refr, .. } => evaluated_inside(refr, globals, found),
        Expr::RefBrack { refr, index, .. } => {
            evaluated_inside(refr, globals, found);
            evaluated_before(index, globals, found);
        }
        Expr::Var { .. } => {}
        _ => evaluated_before(expr, globals, found),
    }
}

/// Of an argument: everything that may be undefined. Comprehensions never are.
fn evaluated_before<'e>(expr: &'e Expr, globals: &BTreeSet<&str>, found: &mut Vec<&'e Expr>) {
    match expr {
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
            for part in syntax::parts(expr) {
                evaluated_before(part, globals, found);
            }
        }
        Expr::Var { span, .. } if globals.contains(span.text()) => found.push(expr),
        Expr::RefDot { .. } | Expr::RefBrack { .. } => found.push(expr),
        _ if is_call(expr) => found.push(expr),
        _ => {}
    }
}

/// What stands in place of a part of a text.
struct Edit {
    range: Range<usize>,
    text: String,
}

/// Rewrites one module.
struct Rewriter<'a> {
    text: &'a str,
    /// Names of rules and imports, which may be undefined, as local variables are not.
    globals: &'a BTreeSet<&'a str>,
    prefix: &'a str,
    count: usize,
}

impl<'a> Rewriter<'a> {
    fn rule(&mut self, rule: &Rule, edits: &mut Vec<Edit>) {
        let (head, bodies) = match rule {
            Rule::Spec { head, bodies, .. } => (head, bodies),
            Rule::Default { value, .. } => return self.expr(value, &[], edits),
        };
        match head {
            RuleHead::Compr { refr, assign, .. } | RuleHead::Func { refr, assign, .. } => {
                self.expr(refr, &[], edits);
                if let Some(assign) = assign {
                    self.expr(&assign.value, &[], edits);
                }
            }
            RuleHead::Set { refr, key, .. } => {
                self.expr(refr, &[], edits);
                if let Some(key) = key {
                    self.expr(key, &[], edits);
                }
            }
        }
        for body in bodies {
            if let Some(assign) = &body.assign {
                self.expr(&assign.value, &[], edits);
            }
            self.body(&body.query, edits);
        }
    }

    /// `if not f(x.a)` has no braces, and more than one statement needs them.
    fn body(&mut self, query: &Query, edits: &mut Vec<Edit>) {
        if let [statement] = query.stmts.as_slice()
            && statement.span.start == query.span.start
            && let Some(mut edit) = self.negation(statement)
        {
            edit.text = format!("{{ {} }}", edit.text);
            edits.push(edit);
        } else {
            self.query(query, edits);
        }
    }

    fn query(&mut self, query: &Query, edits: &mut Vec<Edit>) {
        for statement in &query.stmts {
            match self.negation(statement) {
                Some(edit) => edits.push(edit),
                None => self.statement(statement, edits),
            }
        }
    }

    /// Rewrites the expressions inside a statement that is not negated.
    fn statement(&mut self, statement: &LiteralStmt, edits: &mut Vec<Edit>) {
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                for expr in key.iter().chain([value, collection]) {
                    self.expr(expr, &[], edits);
                }
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => {
                self.expr(expr, &[], edits);
            }
            Literal::Every { domain, query, .. } => {
                self.expr(domain, &[], edits);
                self.query(query, edits);
            }
        }
        for with in &statement.with_mods {
            self.expr(&with.r#as, &[], edits);
        }
    }

    /// The comprehensions in an expression, but those in parts that are moved.
    fn expr(&mut self, expr: &Expr, moved: &[&Expr], edits: &mut Vec<Edit>) {
        if moved.iter().any(|part| std::ptr::eq(*part, expr)) {
            return;
        }
        for part in syntax::parts(expr) {
            self.expr(part, moved, edits);
        }
        if let Some(body) = syntax::body(expr) {
            self.query(body, edits);
        }
    }

    /// A `not` with what is evaluated before it, if anything is.
    fn negation(&mut self, statement: &LiteralStmt) -> Option<Edit> {
        let Literal::NotExpr { span, expr } = &statement.literal else {
            return None;
        };
        let moved = arguments(expr, self.globals);
        // The values of `with` are evaluated before as well.
        let mut with = statement.with_mods.iter();
        let is_plain = with.all(|one| self.is_plain(&one.refr, &one.r#as));
        if moved.is_empty() && is_plain {
            return None;
        }
        let mut front = String::new();
        let with = self.with(statement, &mut front);
        let edits = self.put_in_front(expr, &moved, &with, &mut front);
        let not = self.edited(self.range(span), edits);
        Some(Edit {
            range: self.range(&statement.span),
            text: format!("{front}{not}{with}"),
        })
    }

    /// Puts parts of an expression in front, and gives what stands in their places.
    fn put_in_front(
        &mut self,
        expr: &Expr,
        moved: &[&Expr],
        with: &str,
        front: &mut String,
    ) -> Vec<Edit> {
        let mut edits = Vec::new();
        for part in moved {
            let range = self.range(part.span());
            let text = self.evaluate(part, range.clone(), with, front);
            edits.push(Edit { range, text });
        }
        self.expr(expr, moved, &mut edits);
        edits
    }

    /// Gives an expression to a variable, whose name it gives. Its own arguments come before it: the interpreter takes
    /// `x in y` for false where one of the two is undefined.
    fn evaluate(
        &mut self,
        expr: &Expr,
        range: Range<usize>,
        with: &str,
        front: &mut String,
    ) -> String {
        let mut moved = Vec::new();
        if is_call(expr) {
            for part in syntax::parts(expr) {
                evaluated_before(part, self.globals, &mut moved);
            }
        } else {
            evaluated_inside(expr, self.globals, &mut moved);
        }
        let edits = self.put_in_front(expr, &moved, with, front);
        let value = self.edited(range, edits);
        let name = format!("{}{}", self.prefix, self.count);
        self.count += 1;
        let _ = write!(front, "{name} := ({value}){with}; ");
        name
    }

    /// The `with` clauses of a statement in one line, since each part of it needs them. Values that may be undefined or
    /// have several lines get variables in front.
    fn with(&mut self, statement: &LiteralStmt, front: &mut String) -> String {
        let mut text = String::new();
        for with in &statement.with_mods {
            let target = self.part(self.range(with.refr.span()));
            let value = if self.is_plain(&with.refr, &with.r#as) {
                self.part(self.range(with.r#as.span())).to_owned()
            } else {
                let range = self.value_of(with.refr.span())..self.range(&with.span).end;
                self.evaluate(&with.r#as, range, "", front)
            };
            let _ = write!(text, " with {target} as {value}");
        }
        text
    }

    /// Whether a value in a `with` stays where it is: if it has one line and is never undefined, or may be the name of a
    /// function.
    fn is_plain(&self, target: &Expr, value: &Expr) -> bool {
        let is_document = |expr: &Expr| root(expr).span().text() == "input";
        match value {
            Expr::Number { .. } | Expr::Bool { .. } | Expr::Null { .. } | Expr::String { .. } => {
                true
            }
            Expr::Var { span, .. } => {
                !self.globals.contains(span.text()) || !is_document(target) && !is_document(value)
            }
            Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                let base = root(value);
                let may_be_function = path(value).is_some()
                    && self.globals.contains(base.span().text())
                    && !is_document(value);
                may_be_function && !is_document(target)
            }
            _ => false,
        }
    }

    /// Where the value of a `with` begins: behind the `as` that follows what it replaces.
    fn value_of(&self, target: &Span) -> usize {
        let mut at = self.range(target).end;
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let trimmed = rest.trim_start();
            at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return at + "as".len();
            }
            at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Where an expression stands. The interpreter leaves out the quotes of a text at its beginning and its end.
    fn range(&self, span: &Span) -> Range<usize> {
        let place = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
        let (start, end) = (place(span.start), place(span.end));
        let is_quote = |at: usize| {
            let byte = self.text.as_bytes().get(at);
            usize::from(matches!(byte, Some(b'"' | b'`')))
        };
        let before = start.checked_sub(1).map_or(0, is_quote);
        start - before..end.saturating_add(is_quote(end))
    }

    fn part(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// A part of the text with edits in it.
    fn edited(&self, range: Range<usize>, mut edits: Vec<Edit>) -> String {
        edits.sort_by_key(|edit| edit.range.start);
        let mut text = String::new();
        let mut at = range.start;
        for edit in edits {
            text.push_str(self.part(at..edit.range.start));
            text.push_str(&edit.text);
            at = edit.range.end;
        }
        text.push_str(self.part(at..range.end));
        text
    }
}
