//! `rego.parse_module`: the syntax tree of a module as OPA writes it in JSON, in the language of OPA 1.0. Syntax that is
//! not supported in policies cannot be read here either.
//! See <https://www.openpolicyagent.org/docs/policy-reference/builtins/rego>.

mod node;
mod rules;
mod terms;

use regorus::unstable::{Expr, Module, Ref};
use regorus::{Engine, Value};

use self::node::{Tree, array, object, string};
use super::interpreter;
use super::operand::{Answer, Failure, failed, text};
use crate::tokens::tokens;
use crate::{bounds, newer_syntax, normalise};

/// Implements `rego.parse_module`.
pub(super) fn parse_module(values: &[Value]) -> Answer {
    let (name, source) = (text(values, 0)?, text(values, 1)?);
    let module = parse(name, source)?;
    let mut tree = Tree::default();
    let path = package(&mut tree, &module.package.refr)?;
    let mut fields = vec![("package", object([("path", path)]))];
    let mut imports = Vec::new();
    for import in &module.imports {
        let path = tree.reference(&import.refr)?;
        let alias = import.r#as.as_ref();
        let alias = alias.map(|alias| ("alias", string(alias.text())));
        imports.push(object(alias.into_iter().chain([("path", path)])));
    }
    let mut rules = Vec::new();
    for rule in &module.policy {
        rules.push(tree.rule(rule)?);
    }
    let comments = comments(name, source)?;
    for (key, items) in [
        ("imports", imports),
        ("rules", rules),
        ("comments", comments),
    ] {
        if !items.is_empty() {
            fields.push((key, array(items)));
        }
    }
    Ok(object(fields))
}

/// Reads a module within the bounds of policies.
fn parse(name: &str, source: &str) -> Result<Ref<Module>, Failure> {
    let unreadable = |errors: &dyn std::fmt::Display| {
        Failure::Failed(format!("1 error occurred: rego_parse_error: {errors}"))
    };
    if source.trim().is_empty() {
        return failed(format!("{name}:0: rego_parse_error: empty module"));
    }
    let source_tokens = tokens(source);
    if let Some(error) = newer_syntax::refused(name, &source_tokens).first() {
        return Err(unreadable(error));
    }
    let normalised = normalise::normalised(source, &source_tokens);
    let modules = [(
        name.to_owned(),
        normalised.unwrap_or_else(|| source.to_owned()),
    )];
    bounds::check(&modules).map_err(|errors| unreadable(&errors))?;
    let [(name, source)] = modules;
    let mut engine = Engine::new();
    engine.set_rego_v0(false);
    engine
        .add_policy(name, source)
        .map_err(|error| unreadable(&error))?;
    let module = engine.get_modules().first().cloned();
    module.ok_or(Failure::Undefined)
}

/// Returns the path of a package, from `data`.
fn package(tree: &mut Tree, refr: &Expr) -> Answer {
    let mut path = vec![node::term("var", string("data"))];
    for (at, part) in tree.parts(refr)?.into_iter().enumerate() {
        path.push(match at {
            0 => node::term("string", part["value"].clone()),
            _ => part,
        });
    }
    Ok(array(path))
}

/// Returns the comments of a module.
fn comments(name: &str, source: &str) -> Result<Vec<Value>, Failure> {
    let mut comments = Vec::new();
    let mut gap = 0;
    let ends = tokens(source).into_iter();
    let gaps = ends.map(|token| (token.start, token.end()));
    for (start, end) in gaps.chain([(source.len(), source.len())]) {
        let mut at = gap;
        while let Some(found) = source.get(at..start).and_then(|gap| gap.find('#')) {
            let begin = at + found;
            let rest = &source[begin + 1..];
            let comment = rest.split('\n').next().unwrap_or(rest);
            at = begin + 1 + comment.len();
            let before = &source[..begin];
            let row = before.matches('\n').count() + 1;
            let line = before.rfind('\n').map_or(0, |at| at + 1);
            let location = object([
                ("file", string(name)),
                ("row", Value::from(row)),
                ("col", Value::from(begin - line + 1)),
            ]);
            let comment = string(comment.trim_end_matches('\r'));
            let text = interpreter::call("base64.encode", &[comment])?;
            comments.push(object([("Text", text), ("Location", location)]));
        }
        gap = end;
    }
    Ok(comments)
}
