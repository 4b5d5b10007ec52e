//! Rewrites policies so that the interpreter evaluates them as OPA does. The two differ where a value is undefined,
//! and a policy that grants nothing on OPA must grant nothing here. As OPA's compiler does, before evaluation:
//!
//! - `x in y` becomes a call, which is undefined if an operand is undefined. The interpreter would compare the
//!   undefined operand as a value.
//! - The values of `with` are evaluated before the statement: `p with input.x as y` means `v = y; p with input.x as
//!   v`. The interpreter would omit the statement only if the last of them is missing.
//! - The arguments of a `not` are evaluated before the statement, too: `not f(x.a)` means `v = x.a; not f(v)`, so that
//!   an argument without a value makes the statement undefined. The interpreter would evaluate it inside of the `not`,
//!   and the statement would be true.
//!
//! The interpreter accepts only texts. An expression that has to be evaluated before a statement moves to the front of
//! it, with its line breaks, so that all other lines keep their numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::Result;
use regorus::unstable::{
    BoolOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleHead, Span,
};
use regorus::{Engine, Value};

use crate::error::{CompileError, Reason};
use crate::functions::{self, Names, is_builtin};
use crate::syntax::{self, path};

/// Rewritten modules.
pub(crate) struct Rewritten {
    pub(crate) modules: Vec<(String, String)>,
    /// The prefix of all added names, which no name in the modules has.
    prefix: String,
    /// A description of the rewritten expression, for an error.
    pub(crate) places: Vec<CompileError>,
}

impl Rewritten {
    /// Registers the functions that rewritten modules call.
    pub(crate) fn add_functions(&self, engine: &mut Engine) -> Result<()> {
        for parameters in [2, 3] {
            let name = member(&self.prefix, parameters);
            let call = |values: Vec<Value>| Ok(Value::from(is_member(&values)));
            engine.add_extension(name, parameters, Box::new(call))?;
        }
        Ok(())
    }
}

/// The function that `x in y` calls with two operands, and `k, v in y` with three.
fn member(prefix: &str, operands: u8) -> String {
    format!("{prefix}_member_{operands}")
}

/// Checks whether a collection, the last operand, contains a value, or contains it at a key, the first of three
/// operands. Other values contain nothing, and a set has no keys.
fn is_member(operands: &[Value]) -> bool {
    match operands {
        [value, Value::Array(array)] => array.contains(value),
        [value, Value::Set(set)] => set.contains(value),
        [value, Value::Object(object)] => object.values().any(|item| item == value),
        [
            key,
            value,
            collection @ (Value::Array(_) | Value::Object(_)),
        ] => collection[key] == *value,
        _ => false,
    }
}

/// Rewrites modules; `None` if nothing has to be rewritten. `parsed` are the same modules, in the same order.
pub(crate) fn rewrite(modules: &[(String, String)], parsed: &[Ref<Module>]) -> Option<Rewritten> {
    let mut prefix = "__oz".to_owned();
    while modules.iter().any(|(_, text)| text.contains(&prefix)) {
        prefix.push('_');
    }
    let functions = functions::known(parsed);
    let globals = syntax::globals(parsed);
    let mut places = Vec::new();
    let rewritten = modules.iter().zip(parsed).zip(&globals);
    let rewritten = rewritten.map(|(((name, text), module), globals)| {
        let mut rewriter = Rewriter {
            text,
            globals,
            names: Names::of(module),
            functions: &functions,
            prefix: &prefix,
            count: 0,
            places: Vec::new(),
        };
        let mut edits = Vec::new();
        for rule in &module.policy {
            rewriter.rule(rule, &mut edits);
        }
        places.append(&mut rewriter.places);
        (name.clone(), rewriter.edited(0..text.len(), edits))
    });
    let modules = rewritten.collect();
    (!places.is_empty()).then_some(Rewritten {
        modules,
        prefix,
        places,
    })
}

/// The parts of a negated expression that have values of their own before the `not`.
fn arguments<'e>(expr: &'e Expr, globals: &BTreeSet<&str>) -> Vec<&'e Expr> {
    let mut found = Vec::new();
    match expr {
        // In OPA, `not x.a == 1` is true if `x.a` does not exist.
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

/// Checks whether an expression is a call of a function or of an operator, which OPA treats as a function.
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

/// Collects the parts of an operand that may be undefined: the brackets of a reference, and calls.
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

/// Collects the parts of an argument that may be undefined. A comprehension never is.
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

/// A replacement of a part of a text.
struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    fn insert(at: usize, text: String) -> Self {
        Self {
            range: at..at,
            text,
        }
    }
}

/// The rewriter of one module.
struct Rewriter<'a> {
    text: &'a str,
    /// The names of rules and imports, which may be undefined, unlike local variables.
    globals: &'a BTreeSet<&'a str>,
    names: Names,
    /// The functions of all modules.
    functions: &'a BTreeSet<String>,
    prefix: &'a str,
    count: usize,
    places: Vec<CompileError>,
}

impl<'a> Rewriter<'a> {
    fn rule(&mut self, rule: &Rule, edits: &mut Vec<Edit>) {
        let (head, bodies) = match rule {
            Rule::Spec { head, bodies, .. } => (head, bodies),
            Rule::Default { value, .. } => return self.expr(value, &[], edits),
        };
        match head {
            RuleHead::Compr { refr, assign, .. } => {
                self.expr(refr, &[], edits);
                if let Some(assign) = assign {
                    self.expr(&assign.value, &[], edits);
                }
            }
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                for expr in [refr].into_iter().chain(args) {
                    self.expr(expr, &[], edits);
                }
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

    /// Rewrites a body. `if not f(x.a)` has no braces, and more than one statement requires them.
    fn body(&mut self, query: &Query, edits: &mut Vec<Edit>) {
        match query.stmts.as_slice() {
            [statement] if statement.span.start == query.span.start => {
                self.statement(statement, ("{ ", " }"), edits);
            }
            _ => self.query(query, edits),
        }
    }

    fn query(&mut self, query: &Query, edits: &mut Vec<Edit>) {
        for statement in &query.stmts {
            self.statement(statement, ("", ""), edits);
        }
    }

    /// Rewrites a statement, within braces if an expression is added before it.
    fn statement(
        &mut self,
        statement: &LiteralStmt,
        (open, close): (&str, &str),
        edits: &mut Vec<Edit>,
    ) {
        let mut front = String::new();
        let mut inside = Vec::new();
        let with = self.with(statement, &mut front, &mut inside);
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                for expr in key.iter().chain([value, collection]) {
                    self.expr(expr, &[], &mut inside);
                }
            }
            Literal::Expr { expr, .. } => self.expr(expr, &[], &mut inside),
            Literal::NotExpr { expr, .. } => {
                let moved = arguments(expr, self.globals);
                for part in &moved {
                    let range = self.range(part.span());
                    let text = self.evaluate(part, range.clone(), &with, &mut front);
                    inside.push(Edit { range, text });
                }
                self.expr(expr, &moved, &mut inside);
            }
            Literal::Every { domain, query, .. } => {
                self.expr(domain, &[], &mut inside);
                self.query(query, &mut inside);
            }
        }
        let range = self.range(&statement.span);
        if front.is_empty() {
            edits.append(&mut inside);
        } else {
            edits.push(Edit::insert(range.start, format!("{open}{front}")));
            edits.append(&mut inside);
            edits.push(Edit::insert(range.end, close.to_owned()));
        }
    }

    /// Rewrites the memberships and comprehensions in an expression, except in parts that are moved.
    fn expr(&mut self, expr: &Expr, moved: &[&Expr], edits: &mut Vec<Edit>) {
        if moved.iter().any(|part| std::ptr::eq(*part, expr)) {
            return;
        }
        let range = self.range(expr.span());
        let operands = if let Expr::Membership {
            span,
            key,
            value,
            collection,
            ..
        } = expr
        {
            self.place(span);
            let gap = self.range(value.span()).end..self.range(collection.span()).start;
            let function = member(self.prefix, if key.is_some() { 3 } else { 2 });
            self.keyword("in", gap).map(|keyword| (function, keyword))
        } else {
            None
        };
        if let Some((function, _)) = &operands {
            edits.push(Edit::insert(range.start, format!("{function}(")));
        }
        for part in syntax::parts(expr) {
            self.expr(part, moved, edits);
        }
        if let Some(body) = syntax::body(expr) {
            self.query(body, edits);
        }
        if let Some((_, keyword)) = operands {
            let text = ",".to_owned();
            edits.push(Edit {
                range: keyword,
                text,
            });
            edits.push(Edit::insert(range.end, ")".to_owned()));
        }
    }

    /// Assigns an expression to a new variable. Returns the name of the variable.
    fn evaluate(
        &mut self,
        expr: &Expr,
        range: Range<usize>,
        with: &str,
        front: &mut String,
    ) -> String {
        self.place(expr.span());
        let mut edits = Vec::new();
        self.expr(expr, &[], &mut edits);
        let value = self.edited(range, edits);
        let name = format!("{}{}", self.prefix, self.count);
        self.count += 1;
        let _ = write!(front, "{name} := ({value}){with}; ");
        name
    }

    /// Moves the values of `with` clauses to the front, and returns the clauses in one line, for other expressions
    /// that move there.
    fn with(
        &mut self,
        statement: &LiteralStmt,
        front: &mut String,
        edits: &mut Vec<Edit>,
    ) -> String {
        let mut text = String::new();
        for with in &statement.with_mods {
            let target = self.range(with.refr.span());
            let gap = target.end..self.range(with.r#as.span()).start;
            let value = if self.stays(&with.refr, &with.r#as) {
                self.part(self.range(with.r#as.span())).to_owned()
            } else if let Some(keyword) = self.keyword("as", gap) {
                let range = keyword.end..self.range(&with.span).end;
                let name = self.evaluate(&with.r#as, range.clone(), "", front);
                let text = format!(" {name}");
                edits.push(Edit { range, text });
                name
            } else {
                self.place(&with.span);
                continue;
            };
            let target = self.part(target);
            let _ = write!(text, " with {target} as {value}");
        }
        text
    }

    /// Checks whether the value of a `with` stays in its place: if it is never undefined and has one line, or is a
    /// function that replaces another.
    fn stays(&self, target: &Expr, value: &Expr) -> bool {
        match value {
            Expr::Number { .. } | Expr::Bool { .. } | Expr::Null { .. } | Expr::String { .. } => {
                true
            }
            Expr::Var { span, .. }
                if !self.globals.contains(span.text()) && !self.is_function(value) =>
            {
                true
            }
            _ => self.is_function(value) && self.is_function(target),
        }
    }

    fn is_function(&self, expr: &Expr) -> bool {
        path(expr).is_some_and(|path| {
            is_builtin(&path) || self.names.function(self.functions, &path).is_some()
        })
    }

    /// Returns the position of a keyword that only comments and closing brackets precede.
    fn keyword(&self, word: &str, gap: Range<usize>) -> Option<Range<usize>> {
        let mut rest = self.part(gap.clone());
        loop {
            rest = rest.trim_start_matches(|c: char| c == ')' || c.is_whitespace());
            match rest.strip_prefix('#') {
                Some(comment) => rest = comment.split_once('\n')?.1,
                None => break,
            }
        }
        let start = gap.end - rest.len();
        rest.starts_with(word).then(|| start..start + word.len())
    }

    fn place(&mut self, span: &Span) {
        self.places.push(CompileError {
            file: span.source.get_path().clone(),
            line: span.line,
            column: span.col,
            reason: Reason::Semantics,
            message:
                "this cannot be evaluated as OPA does; give its parts to variables in front of it"
                    .to_owned(),
        });
    }

    /// Returns the range of an expression. The interpreter omits the quotes of a text.
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

    /// Returns a part of the text with its edits.
    fn edited(&self, range: Range<usize>, mut edits: Vec<Edit>) -> String {
        // Insertions come before replacements.
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
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
