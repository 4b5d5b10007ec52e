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
//! - `rego.metadata.rule()` and `rego.metadata.chain()` become their values.
//!
//! The interpreter accepts only texts. An expression that has to be evaluated before a statement moves to the front of
//! it, with its line breaks, so that all other lines keep their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::Result;
use regorus::unstable::{
    BoolOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleHead, Span,
};
use regorus::{Engine, Value};

use crate::annotations::{Annotations, Metadata};
use crate::error::{CompileError, Reason};
use crate::functions::{self, is_builtin};
use crate::language::Language;
use crate::names::Names;
use crate::syntax::{self, path};
use crate::{builtins, newer_syntax, scopes, tokens};

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
/// operands. Other values contain nothing.
fn is_member(operands: &[Value]) -> bool {
    match operands {
        [value, Value::Array(array)] => array.contains(value),
        [value, Value::Set(set)] => set.contains(value),
        [value, Value::Object(object)] => object.values().any(|item| item == value),
        // The members of a set are their own keys.
        [key, value, Value::Set(set)] => key == value && set.contains(value),
        [
            key,
            value,
            collection @ (Value::Array(_) | Value::Object(_)),
        ] => collection[key] == *value,
        _ => false,
    }
}

/// Rewrites modules; `None` if nothing has to be rewritten. `parsed` are the same modules, in the same order.
pub(crate) fn rewrite(
    modules: &[(String, String)],
    parsed: &[Ref<Module>],
    annotations: &Annotations,
) -> Option<Rewritten> {
    let mut prefix = "__oz".to_owned();
    while modules.iter().any(|(_, text)| text.contains(&prefix)) {
        prefix.push('_');
    }
    let functions = functions::list_functions(parsed);
    let globals = syntax::globals(parsed);
    let mut places = Vec::new();
    let rewritten = modules.iter().zip(parsed).zip(&globals).enumerate();
    let rewritten = rewritten.map(|(at, (((name, text), module), globals))| {
        let mut rewriter = Rewriter {
            text,
            metadata: Metadata::new(annotations, at, module),
            globals,
            names: Names::from_module(module),
            negates_bodies: newer_syntax::imports_all_keywords(&tokens::tokens(text)),
            functions: &functions,
            prefix: &prefix,
            count: 0,
            counts: BTreeMap::new(),
            scopes: Vec::new(),
            replacements: Vec::new(),
            places: Vec::new(),
        };
        let mut edits = Vec::new();
        for (at, rule) in module.policy.iter().enumerate() {
            rewriter.metadata.enter(at);
            rewriter.rule(rule, &mut edits);
        }
        places.append(&mut rewriter.places);
        let edited = rewriter.edited(0..text.len(), edits);
        (name.clone(), edited + &rewriter.replacements.concat())
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

/// Returns the position of the last comma between the parameters of a call.
fn last_comma(call: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut last = None;
    for token in tokens::tokens(call) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "," if depth == 1 => last = Some(token.start),
            _ => {}
        }
    }
    last
}

/// Returns a text without the blanks and comments around it.
fn without_margins(text: &str) -> &str {
    let all = tokens::tokens(text);
    match (all.first(), all.last()) {
        (Some(first), Some(last)) => &text[first.start..last.end()],
        _ => text,
    }
}

/// Collects the calls of `walk` with one parameter in an expression, but not those in its comprehensions.
fn calls_of_walk<'e>(expr: &'e Expr, found: &mut Vec<&'e Expr>) {
    if let Expr::Call { fcn, params, .. } = expr
        && params.len() == 1
        && path(fcn).is_some_and(|path| path == ["walk"])
    {
        found.push(expr);
        return;
    }
    if syntax::body(expr).is_none() {
        for part in syntax::parts(expr) {
            calls_of_walk(part, found);
        }
    }
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
    metadata: Metadata<'a>,
    /// The names of rules and imports, which may be undefined, unlike local variables.
    globals: &'a BTreeSet<&'a str>,
    names: Names,
    /// True if `not` is followed by a body, as with `import future.keywords`: a missing argument makes the
    /// body undefined, and the `not` true.
    negates_bodies: bool,
    /// The functions of all modules.
    functions: &'a BTreeSet<String>,
    prefix: &'a str,
    count: usize,
    /// The number of places of each variable of the current rule.
    counts: BTreeMap<String, usize>,
    /// The new names of variables, for each open comprehension and `every`.
    scopes: Vec<BTreeMap<String, String>>,
    /// The functions that replace others.
    replacements: Vec<String>,
    places: Vec<CompileError>,
}

impl<'a> Rewriter<'a> {
    fn rule(&mut self, rule: &Rule, edits: &mut Vec<Edit>) {
        self.scopes.clear();
        self.counts = scopes::of_rule(rule)
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
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
            Literal::SomeVars { vars, .. } => {
                for name in vars {
                    self.rename(name, &mut inside);
                }
            }
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
            Literal::Expr { expr, .. } => {
                let mut moved = self.output(expr, &mut inside);
                self.walks(expr, &with, &mut front, &mut moved, &mut inside);
                self.expr(expr, &moved, &mut inside);
            }
            Literal::NotExpr { expr, .. } => {
                let moved = match self.negates_bodies {
                    true => Vec::new(),
                    false => arguments(expr, self.globals),
                };
                for part in &moved {
                    let range = self.range(part.span());
                    let text = self.evaluate(part, range.clone(), &with, &mut front);
                    inside.push(Edit { range, text });
                }
                self.expr(expr, &moved, &mut inside);
            }
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                self.expr(domain, &[], &mut inside);
                let names: Vec<&Span> = key.iter().chain([value]).collect();
                let texts: Vec<&str> = names.iter().map(|name| name.text()).collect();
                let mut declared = scopes::declared(query);
                declared.extend(texts.iter().filter(|name| **name != "_"));
                self.open(&declared, &scopes::of_every(&texts, query), &statement.span);
                for name in names {
                    self.rename(name, &mut inside);
                }
                self.query(query, &mut inside);
                self.scopes.pop();
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

    /// Gives the result of a function of this crate to its additional parameter, which the interpreter does only for
    /// its own functions: `f(a, x)` means `x = f(a)`.
    fn output<'e>(&mut self, expr: &'e Expr, edits: &mut Vec<Edit>) -> Vec<&'e Expr> {
        let Expr::Call { fcn, params, .. } = expr else {
            return Vec::new();
        };
        if let [result] = params.as_slice()
            && let Some(value) = self.metadata.text(expr)
        {
            self.place(expr.span());
            let mut inner = Vec::new();
            self.expr(result, &[], &mut inner);
            let call = self.range(expr.span());
            let parameter = self.range(fcn.span()).end + 1..call.end.saturating_sub(1);
            let inner = self.edited(parameter, inner);
            let mut text = format!("{} = {value}", without_margins(&inner));
            // All other lines keep their numbers.
            let breaks = self.part(call.clone()).matches('\n').count();
            let left = text.matches('\n').count();
            text.push_str(&"\n".repeat(breaks.saturating_sub(left)));
            edits.push(Edit { range: call, text });
            return vec![expr];
        }
        let name = path(fcn).map(|path| path.join(".")).unwrap_or_default();
        let arity = builtins::arity(&name, Language::V0).map(usize::from);
        let [.., result] = params.as_slice() else {
            return Vec::new();
        };
        if !builtins::is_new(&name) || arity.map(|arity| arity + 1) != Some(params.len()) {
            return Vec::new();
        }
        self.place(expr.span());
        let call = self.range(expr.span());
        // The spans of objects and empty sets do not have their ends.
        let Some(comma) = last_comma(self.part(call.clone())) else {
            return Vec::new();
        };
        let range = call.start + comma + 1..call.end.saturating_sub(1);
        let mut inner = Vec::new();
        self.expr(result, &[], &mut inner);
        // A bracket in front would continue the line before.
        let result_text = self.edited(range.clone(), inner);
        let written = without_margins(&result_text);
        let breaks = result_text.matches('\n').count() - written.matches('\n').count();
        edits.push(Edit::insert(call.start, format!("{written} = ")));
        edits.push(Edit {
            range: range.start - 1..range.end,
            text: "\n".repeat(breaks),
        });
        vec![result]
    }

    /// Moves calls of `walk` with one parameter to the front: each of the pairs is a value of the call. The interpreter
    /// knows the form with two parameters.
    fn walks<'e>(
        &mut self,
        expr: &'e Expr,
        with: &str,
        front: &mut String,
        moved: &mut Vec<&'e Expr>,
        edits: &mut Vec<Edit>,
    ) {
        let mut calls = Vec::new();
        calls_of_walk(expr, &mut calls);
        for call in calls {
            let Expr::Call { fcn, params, .. } = call else {
                continue;
            };
            let Some(walked) = params.first() else {
                continue;
            };
            self.place(call.span());
            let mut inner = Vec::new();
            self.expr(walked, &[], &mut inner);
            // The span of an object begins with its last field.
            let parameter = self.range(fcn.span()).end + 1..self.range(call.span()).end - 1;
            let value = self.edited(parameter, inner);
            let name = format!("{}{}", self.prefix, self.count);
            self.count += 1;
            let text = format!("[{name}_path, {name}_value]");
            let _ = write!(front, "walk({value}, {text}){with}; ");
            let range = self.range(call.span());
            edits.push(Edit { range, text });
            moved.push(call);
        }
    }

    /// Begins the scope of a comprehension or an `every`: names that it declares, and that the rule has outside of it
    /// as well, get new names.
    fn open(&mut self, declared: &BTreeSet<&str>, inside: &scopes::Counts<'_>, span: &Span) {
        let mut names = BTreeMap::new();
        for name in declared {
            let all = self.counts.get(*name).copied().unwrap_or(0);
            if all > inside.get(name).copied().unwrap_or(0) {
                names.insert(
                    (*name).to_owned(),
                    format!("{}_{}_{name}", self.prefix, self.count),
                );
                self.count += 1;
                self.place(span);
            }
        }
        self.scopes.push(names);
    }

    /// Replaces a name by its new name.
    fn rename(&mut self, span: &Span, edits: &mut Vec<Edit>) {
        if let Some(text) = self.renamed(span.text()) {
            let range = self.range(span);
            edits.push(Edit { range, text });
        }
    }

    fn renamed(&self, name: &str) -> Option<String> {
        let mut scopes = self.scopes.iter().rev();
        scopes.find_map(|names| names.get(name)).cloned()
    }

    /// Rewrites the memberships and comprehensions in an expression, except in parts that are moved.
    fn expr(&mut self, expr: &Expr, moved: &[&Expr], edits: &mut Vec<Edit>) {
        if moved.iter().any(|part| std::ptr::eq(*part, expr)) {
            return;
        }
        let range = self.range(expr.span());
        if let Expr::Var { span, .. } = expr {
            self.rename(span, edits);
            return;
        }
        if let Some(mut text) = self.metadata.text(expr) {
            self.place(expr.span());
            // All other lines keep their numbers.
            let breaks = self.part(range.clone()).matches('\n').count();
            text.push_str(&"\n".repeat(breaks));
            edits.push(Edit { range, text });
            return;
        }
        if let Some(body) = syntax::body(expr) {
            self.open(&scopes::declared(body), &scopes::of_expr(expr), expr.span());
        }
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
            self.scopes.pop();
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
        let mut moved = Vec::new();
        self.walks(expr, with, front, &mut moved, &mut edits);
        self.expr(expr, &moved, &mut edits);
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
            let value = if let Some(name) = self.replacement(&with.refr, &with.r#as) {
                edits.push(Edit {
                    range: self.range(with.r#as.span()),
                    text: name.clone(),
                });
                name
            } else if self.stays(&with.refr, &with.r#as) {
                let range = self.range(with.r#as.span());
                let mut inner = Vec::new();
                self.expr(&with.r#as, &[], &mut inner);
                let value = self.edited(range.clone(), inner);
                if value != self.part(range.clone()) {
                    edits.push(Edit {
                        range,
                        text: value.clone(),
                    });
                }
                value
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

    /// Returns the function that calls a built-in one which replaces a function: the interpreter replaces functions by
    /// those of policies only.
    fn replacement(&mut self, target: &Expr, value: &Expr) -> Option<String> {
        let path = path(value).filter(|path| is_builtin(path) && self.is_function(target))?;
        let of_policy = self.names.function(self.functions, &path).is_some();
        let builtin = path.join(".");
        let arity =
            builtins::arity(&builtin, Language::V0).filter(|arity| *arity > 0 && !of_policy)?;
        self.place(value.span());
        let count = self.replacements.len();
        let name = format!("{}_function_{count}", self.prefix);
        let parameters: Vec<String> = (0..arity).map(|at| format!("a{at}")).collect();
        let parameters = parameters.join(", ");
        self.replacements
            .push(format!("\n{name}({parameters}) := {builtin}({parameters})"));
        Some(name)
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
            message: "this cannot be evaluated as OPA does; assign its parts to variables before"
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
