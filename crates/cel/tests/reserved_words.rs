//! CEL in the expressions that the API server evaluates: rules of definitions, ValidatingAdmissionPolicies and match
//! conditions. CEL reserves words, and an API server rejects a definition with a rule that selects a field by one of
//! them: until 1.32 it accepted `namespace` as `__namespace__` only, and every version accepts that name.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop where they fail, too"
)]

use std::path::{Path, PathBuf};

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, LiteralValue};
use kube_cel::cel::parser::Parser;
use serde_json::Value;

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The folders in which rules are written, or generated from Rust.
const FOLDERS: [&str; 2] = ["charts/oz/files", "deploy"];

/// The fields that hold an expression.
const EXPRESSIONS: [&str; 3] = ["rule", "expression", "messageExpression"];

/// Calls `found` for each field that an expression selects, with the name of the variable that it is selected of.
fn fields<'a>(expression: &'a IdedExpr, found: &mut impl FnMut(Option<&'a str>, &'a str)) {
    let variable = |of: &'a IdedExpr| match &of.expr {
        Expr::Ident(name) => Some(name.as_str()),
        _ => None,
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => {
            found(variable(&select.operand), &select.field);
            fields(&select.operand, found);
        }
        Expr::Call(call) => {
            // `a.?b`
            if let ("_?._", [of, field]) = (call.func_name.as_str(), call.args.as_slice())
                && let Expr::Literal(LiteralValue::String(field)) = &field.expr
            {
                found(variable(of), field.inner());
            }
            for part in call.target.as_deref().into_iter().chain(&call.args) {
                fields(part, found);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|one| fields(one, found)),
        Expr::Map(map) => entries(map.entries.iter().map(|entry| &entry.expr), found),
        Expr::Struct(message) => entries(message.entries.iter().map(|entry| &entry.expr), found),
        Expr::Comprehension(one) => {
            for part in [
                &one.iter_range,
                &one.accu_init,
                &one.loop_cond,
                &one.loop_step,
                &one.result,
            ] {
                fields(part, found);
            }
        }
    }
}

fn entries<'a>(
    entries: impl Iterator<Item = &'a EntryExpr>,
    found: &mut impl FnMut(Option<&'a str>, &'a str),
) {
    for entry in entries {
        match entry {
            EntryExpr::StructField(field) => {
                found(None, &field.field);
                fields(&field.value, found);
            }
            EntryExpr::MapEntry(entry) => {
                fields(&entry.key, found);
                fields(&entry.value, found);
            }
        }
    }
}

/// The reserved words by which an expression selects fields.
fn reserved(text: &str) -> Vec<String> {
    let parser = Parser::new().enable_optional_syntax(true);
    let expression = parser
        .parse(text)
        .unwrap_or_else(|errors| panic!("{text}: {errors}"));
    let mut words = Vec::new();
    fields(&expression, &mut |variable, field| {
        // An admission policy's `request` has no schema: in every version its fields have their own names.
        let of_request = variable == Some("request") && field == "namespace";
        if RESERVED.contains(&field) && !of_request {
            words.push(field.to_owned());
        }
    });
    words.sort();
    words
}

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, all);
        } else if path
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "json")
        {
            all.push(path);
        }
    }
}

/// Collects the texts of all expressions in a document.
fn expressions<'a>(document: &'a Value, all: &mut Vec<&'a str>) {
    match document {
        Value::Array(items) => items.iter().for_each(|item| expressions(item, all)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if EXPRESSIONS.contains(&name.as_str()) => all.push(text),
                    _ => expressions(value, all),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn rule_that_selects_a_field_by_a_reserved_word_is_found() {
    let none: [&str; 0] = [];
    for (text, words) in [
        ("has(self.namespace)", &["namespace"][..]),
        ("self.spec.target.namespace == 'a'", &["namespace"]),
        (
            "self.subjects.all(s, has(s.kind) && s.package != '')",
            &["package"],
        ),
        (
            "object.?function.orValue('') == dyn(params).import",
            &["function", "import"],
        ),
        ("object.request.namespace == ''", &["namespace"]),
        ("has(self.__namespace__) && self['namespace'] != ''", &none),
        (
            "authorizer.group('').namespace(request.namespace).check('get').allowed()",
            &none,
        ),
    ] {
        assert_eq!(reserved(text), words, "{text}");
    }
}

#[test]
fn rules_of_definitions_and_policies_select_no_field_by_a_reserved_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for folder in FOLDERS {
        files(&root.join(folder), &mut paths);
    }
    let mut count = 0;
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let mut all = Vec::new();
        for document in &documents {
            expressions(document, &mut all);
        }
        count += all.len();
        for text in all {
            let words = reserved(text);
            if !words.is_empty() {
                found.push(format!("{}: {text}: {words:?}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(count > 100, "{count} expressions found");
}
