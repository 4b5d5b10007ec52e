//! The paths below `data` that a policy reads: a module, a document or a `with` must be able to define each. Otherwise
//! the policy would be undefined, return no children, and those that exist would be deleted.

use std::collections::BTreeSet;

use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead, Span};
use serde_json::{Map, Value};

use crate::error::{CompileError, CompileErrors, Reason};
use crate::names::Names;
use crate::sources::{self, Document};
use crate::syntax::{self, package, path, root};

/// A path below `data`, without `data`.
type Path = Vec<String>;

/// The paths that modules define.
#[derive(Default)]
struct Defined {
    packages: BTreeSet<Path>,
    rules: BTreeSet<Path>,
}

/// Checks the paths that modules read, and that no document defines what a module defines.
pub(crate) fn check(modules: &[Ref<Module>], documents: &[Document]) -> Result<(), CompileErrors> {
    let mut reader = Reader::default();
    let mut defined = Defined::default();
    for module in modules {
        let package = package(module).split_off(1);
        reader.module = Names::from_module(module);
        for rule in &module.policy {
            let head = syntax::head(rule);
            let name = path(head).or_else(|| path(root(head)));
            let rule_path = match name {
                Some(name) => [package.as_slice(), &name].concat(),
                None => package.clone(),
            };
            defined.rules.insert(rule_path);
            reader.rule(rule);
        }
        reader.imports(module);
        defined.packages.insert(package);
    }
    let Reader { read, replaced, .. } = reader;
    let mut errors = contradictions(&defined, documents);
    let defines = |read: &[String]| {
        let mut rules = defined.rules.iter().chain(&replaced);
        rules.any(|rule| rule.starts_with(read) || read.starts_with(rule))
            || defined.packages.iter().any(|one| one.starts_with(read))
            || documents.iter().any(|one| may_have(&one.content, read))
    };
    let mut seen = BTreeSet::new();
    for (path, span) in read {
        let (file, line) = (span.source.get_path(), span.line);
        if defines(&path) || !seen.insert((file, line, path.clone())) {
            continue;
        }
        let path = path.join(".");
        errors.push(CompileError {
            file: file.clone(),
            line,
            column: span.col,
            reason: Reason::Data,
            message: format!(
                "no module and no document defines data.{path}: correct the path, or add a \
                 document with it, a key that ends in .json or .yaml"
            ),
        });
    }
    CompileErrors::all(errors)
}

/// Checks whether a document may have a value at a path: it has all but the last key, which may be optional, and the
/// first in any case.
fn may_have(document: &Map<String, Value>, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    let Some(mut value) = document.get(first) else {
        return false;
    };
    let between = rest.split_last().map_or(rest, |(_, between)| between);
    for key in between {
        match value {
            Value::Object(fields) => match fields.get(key) {
                Some(field) => value = field,
                None => return false,
            },
            _ => return true,
        }
    }
    true
}

/// The value of a document at a path.
#[derive(PartialEq, Eq)]
enum At {
    Nothing,
    Object,
    /// Another value, there or on the way.
    Value,
}

fn at(document: &Map<String, Value>, path: &[String]) -> At {
    let mut fields = document;
    for key in path {
        match fields.get(key) {
            None => return At::Nothing,
            Some(Value::Object(below)) => fields = below,
            Some(_) => return At::Value,
        }
    }
    At::Object
}

/// Returns the errors of documents that define the value of a rule, or of a package.
fn contradictions(defined: &Defined, documents: &[Document]) -> Vec<CompileError> {
    let mut errors = Vec::new();
    for document in documents {
        let at = |path: &&Path| at(&document.content, path);
        let rule = defined.rules.iter().find(|rule| at(rule) != At::Nothing);
        let packages = &mut defined.packages.iter();
        let conflict = rule.or_else(|| packages.find(|package| at(package) == At::Value));
        if let Some(path) = conflict {
            let message = format!(
                "defines data.{}, which a module defines, too",
                path.join(".")
            );
            errors.push(sources::error(&document.name, message));
        }
    }
    errors
}

/// The paths in modules.
#[derive(Default)]
struct Reader<'a> {
    read: Vec<(Path, &'a Span)>,
    /// The meanings of names in the current module.
    module: Names,
    /// The names that it uses.
    used: BTreeSet<&'a str>,
    /// The paths that a `with` replaces.
    replaced: Vec<Path>,
}

impl<'a> Reader<'a> {
    /// Reads the imports that a module uses, after its rules. An unused import reads nothing.
    fn imports(&mut self, module: &'a Module) {
        let used = std::mem::take(&mut self.used);
        for import in &module.imports {
            let last = path(&import.refr).and_then(|mut path| path.pop());
            let name = import.r#as.as_ref().map(|span| span.text().to_owned());
            if name.or(last).is_some_and(|name| used.contains(&*name)) {
                self.reference(&import.refr);
            }
        }
    }

    fn rule(&mut self, rule: &'a Rule) {
        match rule {
            Rule::Default { value, .. } => self.expr(value),
            Rule::Spec { head, bodies, .. } => {
                match head {
                    RuleHead::Compr { refr, assign, .. } => {
                        self.brackets(refr);
                        self.assign(assign.as_ref());
                    }
                    RuleHead::Set { refr, key, .. } => {
                        self.brackets(refr);
                        key.iter().for_each(|key| self.expr(key));
                    }
                    RuleHead::Func { args, assign, .. } => {
                        args.iter().for_each(|arg| self.expr(arg));
                        self.assign(assign.as_ref());
                    }
                }
                for body in bodies {
                    self.assign(body.assign.as_ref());
                    self.query(&body.query);
                }
            }
        }
    }

    fn assign(&mut self, assign: Option<&'a RuleAssign>) {
        assign.iter().for_each(|assign| self.expr(&assign.value));
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
                    key.iter().for_each(|key| self.expr(key));
                    self.expr(value);
                    self.expr(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every { domain, query, .. } => {
                    self.expr(domain);
                    self.query(query);
                }
            }
            for with in &statement.with_mods {
                let whole = path(&with.refr).map(|path| self.module.whole(path));
                self.replaced.extend(whole.and_then(data));
                self.expr(&with.r#as);
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        if let Expr::RefDot { .. } | Expr::RefBrack { .. } = expr {
            self.reference(expr);
            self.brackets(expr);
            return;
        }
        if let Expr::Var { span, .. } = expr {
            self.used.insert(span.text());
        }
        for part in syntax::parts(expr) {
            self.expr(part);
        }
        if let Some(body) = syntax::body(expr) {
            self.query(body);
        }
    }

    /// Reads the expressions in the brackets of a reference, and its root if it is not a name.
    fn brackets(&mut self, mut expr: &'a Expr) {
        loop {
            match expr {
                Expr::RefDot { refr, .. } => expr = refr,
                Expr::RefBrack { refr, index, .. } => {
                    self.expr(index);
                    expr = refr;
                }
                other => return self.expr(other),
            }
        }
    }

    fn reference(&mut self, expr: &'a Expr) {
        if let Some(path) = below_data(expr) {
            self.read.push((path, root(expr).span()));
        }
    }
}

/// Returns a path that begins with `data`, without that.
fn data(mut path: Path) -> Option<Path> {
    let is_data = path.first().is_some_and(|root| root == "data");
    is_data.then(|| path.split_off(1))
}

/// Returns the names of a reference to `data` up to the first that is computed; `None` for other expressions.
fn below_data(mut expr: &Expr) -> Option<Path> {
    loop {
        match path(expr) {
            Some(names) => return data(names),
            None => match expr {
                Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } => expr = refr,
                _ => return None,
            },
        }
    }
}
