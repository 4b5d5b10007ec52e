//! The functions that a policy calls: they must exist, be functions of their input, and not call themselves. The
//! interpreter would report a violation only when it reaches the call, and a function that calls itself would overflow
//! its stack.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{BUILTINS, Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead};

use crate::error::{CompileError, CompileErrors, Reason};
use crate::growth::{Growth, Uses};
use crate::syntax::{self, package, path, root};

/// Functions with results that are not functions of their input. Most are not in the interpreter as it is compiled
/// here, but a policy that names one must get the reason.
const NO_FUNCTIONS_OF_INPUT: [&str; 5] = [
    "http.send",
    "net.lookup_ip_addr",
    "opa.runtime",
    "rand.intn",
    "uuid.rfc4122",
];

/// Checks all modules.
pub(crate) fn check(modules: &[Ref<Module>]) -> Result<(), CompileErrors> {
    let known = known(modules);
    let mut reader = Reader {
        names: Names::default(),
        known: &known,
        uses: Uses::default(),
        errors: Vec::new(),
    };
    let mut functions: BTreeMap<String, Uses> = BTreeMap::new();
    for module in modules {
        reader.names = Names::of(module);
        for rule in &module.policy {
            reader.uses = Uses::at(rule);
            let name = reader.rule(rule);
            let uses = std::mem::take(&mut reader.uses);
            if let Some(name) = name {
                functions
                    .entry(name)
                    .or_insert_with(|| Uses::at(rule))
                    .add(uses);
            }
        }
    }
    let mut errors = reader.errors;
    if errors.is_empty() {
        errors = Growth::of(&functions);
    }
    errors.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    errors.dedup();
    CompileErrors::all(errors)
}

/// Returns the functions of a policy, each with its full path.
pub(crate) fn known(modules: &[Ref<Module>]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for module in modules {
        let package = package(module);
        for rule in &module.policy {
            let refr = match rule.as_ref() {
                Rule::Spec {
                    head: RuleHead::Func { refr, .. },
                    ..
                } => refr,
                Rule::Default { refr, args, .. } if !args.is_empty() => refr,
                _ => continue,
            };
            known.insert(joined(&package, path(refr).as_deref()));
        }
    }
    known
}

/// Checks whether a path is the name of a built-in function.
pub(crate) fn is_builtin(path: &[String]) -> bool {
    BUILTINS.contains_key(path.join(".").as_str())
}

/// Returns all rules, each name once per module.
pub(crate) fn rules(modules: &[Ref<Module>]) -> Vec<crate::policy::Rule> {
    let mut seen = BTreeSet::new();
    let all = modules.iter().flat_map(|module| {
        let rules = module.policy.iter();
        rules.map(|ast| rule(module, ast))
    });
    all.filter(|rule| seen.insert((rule.file.clone(), rule.path.clone())))
        .collect()
}

/// Returns the position of a rule, and its path for queries.
pub(crate) fn rule(module: &Module, ast: &Rule) -> crate::policy::Rule {
    let refr = syntax::head(ast);
    // The name alone, for `children[child]`.
    let name = path(refr).or_else(|| path(root(refr)));
    let span = ast.span();
    crate::policy::Rule {
        path: joined(&package(module)[1..], name.as_deref()),
        file: span.source.get_path().clone(),
        line: span.line,
    }
}

/// The meanings of names in a module.
#[derive(Default)]
pub(crate) struct Names {
    package: Vec<String>,
    imports: BTreeMap<String, Vec<String>>,
}

impl Names {
    pub(crate) fn of(module: &Module) -> Self {
        let mut imports = BTreeMap::new();
        for import in &module.imports {
            let Some(path) = path(&import.refr) else {
                continue;
            };
            let alias = import.r#as.as_ref().map(|span| span.text().to_owned());
            if let Some(alias) = alias.or_else(|| path.last().cloned()) {
                imports.insert(alias, path);
            }
        }
        Self {
            package: package(module),
            imports,
        }
    }

    /// Finds the known function that a path names: in this package, by an import, or in full.
    pub(crate) fn function(&self, known: &BTreeSet<String>, path: &[String]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        let imported = self.imports.get(first).map(|import| {
            let whole = [import.as_slice(), rest].concat();
            whole.join(".")
        });
        let candidates = [
            Some(joined(&self.package, Some(path))),
            imported,
            Some(path.join(".")),
        ];
        let mut candidates = candidates.into_iter().flatten();
        candidates.find(|name| known.contains(name))
    }
}

struct Reader<'a> {
    names: Names,
    known: &'a BTreeSet<String>,
    uses: Uses,
    errors: Vec<CompileError>,
}

impl Reader<'_> {
    /// Reads a rule, and returns the function that it defines.
    fn rule(&mut self, rule: &Rule) -> Option<String> {
        match rule {
            Rule::Spec { head, bodies, .. } => {
                let name = self.head(head);
                for body in bodies {
                    self.assign(body.assign.as_ref());
                    self.query(&body.query);
                }
                name
            }
            Rule::Default {
                refr, args, value, ..
            } => {
                self.expr(value);
                (!args.is_empty()).then(|| joined(&self.names.package, path(refr).as_deref()))
            }
        }
    }

    fn head(&mut self, head: &RuleHead) -> Option<String> {
        match head {
            RuleHead::Compr { refr, assign, .. } => {
                self.expr(refr);
                self.assign(assign.as_ref());
                None
            }
            RuleHead::Set { refr, key, .. } => {
                self.expr(refr);
                if let Some(key) = key {
                    self.expr(key);
                }
                None
            }
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                args.iter().for_each(|arg| self.expr(arg));
                self.assign(assign.as_ref());
                Some(joined(&self.names.package, path(refr).as_deref()))
            }
        }
    }

    fn assign(&mut self, assign: Option<&RuleAssign>) {
        if let Some(assign) = assign {
            self.expr(&assign.value);
        }
    }

    fn query(&mut self, query: &Query) {
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
                self.refused(&with.refr);
                self.expr(&with.r#as);
                // A function can replace another.
                if let Some(name) = path(&with.r#as).and_then(|path| self.function(&path)) {
                    self.uses.calls.push(name);
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Array { .. }
            | Expr::Set { .. }
            | Expr::Object { .. }
            | Expr::ArrayCompr { .. }
            | Expr::SetCompr { .. }
            | Expr::ObjectCompr { .. } => self.uses.makes += 1,
            Expr::Call { fcn, params, .. } => self.call(fcn, params.len()),
            Expr::RefDot { .. } | Expr::RefBrack { .. } if self.refused(expr) => return,
            _ => {}
        }
        for part in syntax::parts(expr) {
            self.expr(part);
        }
        if let Some(body) = syntax::body(expr) {
            self.query(body);
        }
    }

    fn call(&mut self, fcn: &Expr, params: usize) {
        if self.refused(fcn) {
            return;
        }
        let Some(path) = path(fcn) else {
            return self.error(fcn, Reason::UnknownFunction, "not a function".to_owned());
        };
        // Some calls to functions of the interpreter are steps towards a result.
        self.uses.makes += 1;
        let name = path.join(".");
        if let Some(name) = self.function(&path) {
            self.uses.calls.push(name);
        } else if name != "print" {
            let message = match BUILTINS.get(name.as_str()) {
                None => format!("unknown function {name}"),
                // An additional parameter can receive its result.
                Some((_, arity)) => match params.checked_sub(usize::from(*arity)) {
                    Some(0 | 1) => return,
                    _ => format!("{name} has {arity} parameters, and not {params}"),
                },
            };
            self.error(fcn, Reason::UnknownFunction, message);
        }
    }

    /// Finds the function of the policy that a path names.
    fn function(&self, path: &[String]) -> Option<String> {
        self.names.function(self.known, path)
    }

    fn refused(&mut self, expr: &Expr) -> bool {
        let Some(name) = path(expr).map(|path| path.join(".")) else {
            return false;
        };
        let refused = NO_FUNCTIONS_OF_INPUT.contains(&name.as_str());
        if refused {
            let message =
                format!("{name} is no function of the input, so that a policy cannot use it");
            self.error(expr, Reason::NotAFunctionOfInput, message);
        }
        refused
    }

    fn error(&mut self, expr: &Expr, reason: Reason, message: String) {
        let span = root(expr).span();
        self.errors.push(CompileError {
            file: span.source.get_path().clone(),
            line: span.line,
            column: span.col,
            reason,
            message,
        });
    }
}

/// Returns the full path of a name in a package; that of the package itself, if the name is computed.
fn joined(package: &[String], path: Option<&[String]>) -> String {
    let parts = package.iter().chain(path.into_iter().flatten());
    parts.map(String::as_str).collect::<Vec<_>>().join(".")
}
