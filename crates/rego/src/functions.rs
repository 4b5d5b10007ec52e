//! The functions that a policy calls: they must exist, be functions of their input, and not call themselves. The
//! interpreter would report a violation only when it reaches the call, and a function that calls itself would overflow
//! its stack.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead};

use crate::builtins;
use crate::error::{CompileError, CompileErrors, Reason};
use crate::growth::{Growth, Uses};
use crate::language::Language;
use crate::names::{Names, joined};
use crate::syntax::{self, package, path, root};

/// Functions that are refused, with what to write instead. The results of the first ones are not functions of their
/// input.
const REFUSED: [(&str, Reason, &str); 9] = [
    (
        "http.send",
        Reason::NotAFunctionOfInput,
        "select the objects with `customize`, and read them in the input",
    ),
    (
        "net.lookup_ip_addr",
        Reason::NotAFunctionOfInput,
        "write the addresses into the parent or the policy",
    ),
    (
        "opa.runtime",
        Reason::NotAFunctionOfInput,
        "write the configuration into the policy",
    ),
    (
        "rand.intn",
        Reason::NotAFunctionOfInput,
        "derive the number from the UID of the parent, as by `crypto.sha256`",
    ),
    (
        "uuid.rfc4122",
        Reason::NotAFunctionOfInput,
        "use the UID of the parent",
    ),
    (
        "io.jwt.",
        Reason::NotSupported,
        "verify tokens where they arrive, and write their claims into the parent",
    ),
    (
        "crypto.x509.",
        Reason::NotSupported,
        "verify certificates where they arrive, and write their names into the parent",
    ),
    (
        "crypto.parse_private_keys",
        Reason::NotSupported,
        "no policy needs a private key: pass what it has to decide on",
    ),
    (
        "graphql.",
        Reason::NotSupported,
        "parse queries where they arrive, and write their fields into the parent",
    ),
];

/// Returns the refusal of a function.
fn refusal(name: &str) -> Option<(Reason, String)> {
    let refused = REFUSED.iter().find(|(refused, ..)| {
        name == *refused || (refused.ends_with('.') && name.starts_with(refused))
    });
    refused.map(|(_, reason, instead)| {
        let why = match reason {
            Reason::NotAFunctionOfInput => " (it is not a function of the input)",
            _ => "",
        };
        (*reason, format!("{name} is not supported{why}: {instead}"))
    })
}

/// Checks all modules. Returns the built-in functions that they use.
pub(crate) fn check(
    modules: &[Ref<Module>],
    language: Language,
) -> Result<BTreeSet<String>, CompileErrors> {
    let known = list_functions(modules);
    let mut reader = Reader {
        names: Names::default(),
        known: &known,
        language,
        builtins: BTreeSet::new(),
        uses: Uses::default(),
        errors: Vec::new(),
    };
    let mut functions: BTreeMap<String, Uses> = BTreeMap::new();
    for module in modules {
        reader.names = Names::from_module(module);
        for rule in &module.policy {
            reader.uses = Uses::from_rule(rule);
            let name = reader.rule(rule);
            let uses = std::mem::take(&mut reader.uses);
            if let Some(name) = name {
                functions
                    .entry(name)
                    .or_insert_with(|| Uses::from_rule(rule))
                    .add(uses);
            }
        }
    }
    let Reader {
        mut errors,
        builtins,
        ..
    } = reader;
    if errors.is_empty() {
        errors = Growth::check(&functions);
    }
    errors.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    errors.dedup();
    CompileErrors::all(errors).map(|()| builtins)
}

/// Returns the functions of a policy, each with its full path.
pub(crate) fn list_functions(modules: &[Ref<Module>]) -> BTreeSet<String> {
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
    builtins::arity(&path.join("."), Language::V0).is_some()
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

struct Reader<'a> {
    names: Names,
    known: &'a BTreeSet<String>,
    language: Language,
    builtins: BTreeSet<String>,
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
                if let Some(path) = path(&with.r#as) {
                    match self.function(&path) {
                        Some(name) => self.uses.calls.push(name),
                        None if is_builtin(&path) => {
                            self.builtins.insert(path.join("."));
                        }
                        None => {}
                    }
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
            let message = match builtins::arity(&name, self.language) {
                None => format!("unknown function {name}"),
                // An additional parameter can receive its result.
                Some(arity) => match params.checked_sub(usize::from(arity)) {
                    Some(0 | 1) => {
                        self.builtins.insert(name);
                        return;
                    }
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
        let Some((reason, message)) = refusal(&name) else {
            return false;
        };
        self.error(expr, reason, message);
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The test that calls every function reads the signatures.
    #[test]
    fn function_of_the_registry_has_a_signature_or_is_refused() {
        let capabilities = crate::capabilities::capabilities();
        let signatures = capabilities["builtins"].as_array().unwrap().iter();
        let signatures: BTreeSet<&str> = signatures
            .map(|builtin| builtin["name"].as_str().unwrap())
            .collect();
        let without = builtins::names().filter(|name| {
            let is_callable = builtins::arity(name, Language::V0).is_some();
            is_callable && refusal(name).is_none() && !signatures.contains(name)
        });
        assert_eq!(without.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
