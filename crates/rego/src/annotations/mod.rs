//! The annotations of a policy, which `rego.metadata.rule` and `rego.metadata.chain` return. As in OPA's compiler, a call
//! becomes its value before the evaluation. Annotations of policies without such calls are comments.
//! See <https://www.openpolicyagent.org/docs/policy-language#metadata>.

mod block;

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Module, Ref};
use serde_json::{Map, Value, json};

use self::block::{Block, Invalid, Scope};
use crate::bounds::MAX_BYTES;
use crate::error::{CompileError, CompileErrors, Reason};
use crate::syntax;

/// The function that returns the annotations of its rule, of the rule's document and of its packages.
const CHAIN: &str = "rego.metadata.chain";
/// The function that returns the annotations of its rule.
const RULE: &str = "rego.metadata.rule";

/// A path below `data`.
type Path = Vec<String>;

/// The annotations of a policy.
#[derive(Default)]
pub(crate) struct Annotations {
    /// The annotations of each rule, by the module and the position of the rule in it.
    rules: BTreeMap<(usize, usize), Vec<Block>>,
    documents: BTreeMap<Path, Block>,
    packages: BTreeMap<Path, Block>,
    subpackages: BTreeMap<Path, Block>,
}

/// A statement to which annotations belong.
enum Statement {
    Package,
    Import,
    /// A rule, by its position in the module.
    Rule(usize),
}

impl Annotations {
    /// Reads the annotations of modules if the policy uses their functions. `texts` are the same modules.
    pub(crate) fn read(
        texts: &[(String, String)],
        modules: &[Ref<Module>],
        used: &BTreeSet<String>,
    ) -> Result<Self, CompileErrors> {
        let mut annotations = Self::default();
        if !used.contains(CHAIN) && !used.contains(RULE) {
            return Ok(annotations);
        }
        let mut errors = Vec::new();
        for (at, ((name, text), module)) in texts.iter().zip(modules).enumerate() {
            let statements = statements(module);
            for block in block::blocks(text) {
                let line = block.line;
                let attached = block
                    .parse()
                    .and_then(|block| annotations.attach(block, at, module, &statements));
                if let Err(message) = attached {
                    errors.push(CompileError {
                        file: name.clone(),
                        line,
                        column: 1,
                        reason: Reason::Semantics,
                        message: message.0,
                    });
                }
            }
        }
        CompileErrors::all(errors).map(|()| annotations)
    }

    fn attach(
        &mut self,
        mut block: Block,
        at: usize,
        module: &Module,
        statements: &[(u32, Statement)],
    ) -> Result<(), Invalid> {
        let below = statements.iter().find(|(line, _)| *line > block.line);
        let below = below.map(|(_, statement)| statement);
        let is_entrypoint = block.fields.contains_key("entrypoint");
        let scope = block.scope.unwrap_or(match below {
            Some(Statement::Rule(_)) if is_entrypoint => Scope::Document,
            Some(Statement::Rule(_)) => Scope::Rule,
            _ => Scope::Package,
        });
        if is_entrypoint && !matches!(scope, Scope::Document | Scope::Package) {
            return Err(Invalid(format!(
                "annotation entrypoint applied to non-document or package scope '{scope}'"
            )));
        }
        block
            .fields
            .insert("scope".to_owned(), json!(scope.to_string()));
        let package = syntax::package(module).split_off(1);
        let replaced = match (scope, below) {
            (Scope::Rule, Some(Statement::Rule(rule))) => {
                self.rules.entry((at, *rule)).or_default().push(block);
                None
            }
            (Scope::Document, Some(Statement::Rule(rule))) => {
                let path = rule_path(module, *rule);
                self.documents.insert(path, block)
            }
            (Scope::Package, Some(Statement::Package)) => self.packages.insert(package, block),
            (Scope::Subpackages, Some(Statement::Package)) => {
                self.subpackages.insert(package, block)
            }
            (Scope::Rule | Scope::Document, _) => return Err(misplaced(scope, "rule")),
            (Scope::Package | Scope::Subpackages, _) => return Err(misplaced(scope, "package")),
        };
        match replaced {
            None => Ok(()),
            Some(before) => Err(Invalid(format!(
                "{scope} annotation redeclared: line {}",
                before.line
            ))),
        }
    }

    /// Returns the value of a call in a rule; `None` if the function is another one.
    fn value(&self, function: &Expr, module: usize, rule: usize, ast: &Module) -> Option<Value> {
        let name = syntax::path(function)?.join(".");
        match name.as_str() {
            CHAIN => Some(self.chain(module, rule, ast)),
            RULE => {
                let own = self.rules.get(&(module, rule));
                let first = own.and_then(|blocks| blocks.first());
                Some(first.map_or_else(|| json!({}), Block::value))
            }
            _ => None,
        }
    }

    fn chain(&self, module: usize, rule: usize, ast: &Module) -> Value {
        let path = rule_path(ast, rule);
        let package = syntax::package(ast).split_off(1);
        let mut chain = Vec::new();
        let own = self.rules.get(&(module, rule)).into_iter().flatten();
        chain.extend(own.rev().map(|block| link(&path, Some(block))));
        if chain.is_empty() {
            chain.push(link(&path, None));
        }
        let document = self.documents.get(&path).into_iter();
        chain.extend(document.map(|block| link(&path, Some(block))));
        let of_package = self.packages.get(&package).into_iter();
        chain.extend(of_package.map(|block| link(&package, Some(block))));
        for len in (0..=package.len()).rev() {
            let above = &package[..len];
            let block = self.subpackages.get(above).into_iter();
            chain.extend(block.map(|block| link(above, Some(block))));
        }
        Value::from(chain)
    }
}

/// The annotations that calls in the current rule return.
pub(crate) struct Metadata<'a> {
    annotations: &'a Annotations,
    /// The position of the module, and the module.
    module: (usize, &'a Module),
    /// The position of the rule in the module.
    rule: usize,
    /// The number of bytes that replaced calls.
    inserted: usize,
}

impl<'a> Metadata<'a> {
    /// Returns the annotations of a module, by its position.
    pub(crate) fn new(annotations: &'a Annotations, at: usize, module: &'a Module) -> Self {
        Self {
            annotations,
            module: (at, module),
            rule: 0,
            inserted: 0,
        }
    }

    /// Begins a rule, by its position in the module.
    pub(crate) fn enter(&mut self, rule: usize) {
        self.rule = rule;
    }

    /// Returns the value of a call as a text; `None` if it is a call of another function, or if the policy would
    /// become too large.
    pub(crate) fn text(&mut self, call: &Expr) -> Option<String> {
        let Expr::Call { fcn, .. } = call else {
            return None;
        };
        let (at, module) = self.module;
        if self.inserted > MAX_BYTES {
            return None;
        }
        let value = self.annotations.value(fcn, at, self.rule, module)?;
        let text = value.to_string();
        self.inserted += text.len();
        Some(text)
    }
}

fn misplaced(scope: Scope, statement: &str) -> Invalid {
    Invalid(format!(
        "annotation scope '{scope}' must be applied to {statement}"
    ))
}

fn link(path: &[String], block: Option<&Block>) -> Value {
    let mut link = Map::new();
    link.insert("path".to_owned(), json!(path));
    if let Some(block) = block {
        link.insert("annotations".to_owned(), block.value());
    }
    Value::from(link)
}

/// Returns the statements of a module in the order of their lines.
fn statements(module: &Module) -> Vec<(u32, Statement)> {
    let mut statements = vec![(module.package.span.line, Statement::Package)];
    let imports = module.imports.iter();
    statements.extend(imports.map(|import| (import.span.line, Statement::Import)));
    let rules = module.policy.iter().enumerate();
    statements.extend(rules.map(|(at, rule)| (rule.span().line, Statement::Rule(at))));
    statements.sort_by_key(|(line, _)| *line);
    statements
}

/// Returns the path of a rule, up to the first part that is not constant.
fn rule_path(module: &Module, rule: usize) -> Path {
    let mut path = syntax::package(module).split_off(1);
    let Some(rule) = module.policy.get(rule) else {
        return path;
    };
    let mut name = syntax::head(rule);
    loop {
        if let Some(names) = syntax::path(name) {
            path.extend(names);
            return path;
        }
        name = match name {
            Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } => refr,
            _ => return path,
        };
    }
}
