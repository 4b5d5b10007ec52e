//! Checks of objects in files: each document of a file against the schema and the rules of its kind.

mod composites;
mod documents;
mod expressions;
mod found;
mod metadata;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use oz_api::{GROUP, VERSION, example_com};
use oz_core::kinds::{self, Entry};
use serde_json::{Value, json};

use self::documents::{documents, line_of};
use self::found::{Found, add_checked};
use self::schema::{structure, unknown};
use crate::checks::check as check_rules;
use crate::composites::{DECORATOR, NO_DECORATORS};

/// Returns the texts of the documents in a file.
pub(crate) fn texts(text: &str) -> impl Iterator<Item = &str> {
    documents(text).into_iter().map(|document| document.text)
}

/// The kinds of findings, for tools that sort them.
pub const RULES: [(&str, &str); 5] = [
    ("file", "The file cannot be read"),
    ("yaml", "The document is not YAML"),
    (
        "schema",
        "A field is unknown, missing or of another type than in the CRD",
    ),
    ("rule", "A value breaks a rule that the webhook enforces"),
    ("kind", "The API group of oz has no such kind or version"),
];

/// A finding: an object or a file that the cluster would reject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The kind of the finding, one of [`RULES`].
    pub rule: &'static str,
    /// The kind and the name.
    pub object: Option<String>,
    /// The path of the field.
    pub field: String,
    /// The reason of the rejection.
    pub message: String,
}

impl Finding {
    /// Returns the finding as JSON, stable and documented.
    pub fn to_json(&self) -> Value {
        json!({
            "file": self.file, "line": self.line, "rule": self.rule, "object": self.object,
            "field": self.field, "message": self.message,
        })
    }
}

/// Returns the finding for a file that cannot be read.
pub fn unreadable(file: &str, error: &std::io::Error) -> Finding {
    Finding {
        file: file.to_owned(),
        line: 1,
        rule: "file",
        object: None,
        field: String::new(),
        message: format!("cannot be read: {error}"),
    }
}

/// Checks all documents of a file as of admission at `now`. Returns the number of objects of oz,
/// and the findings.
pub fn check(file: &str, text: &str, now: Timestamp) -> (usize, Vec<Finding>) {
    let mut checked = 0;
    let mut findings = Vec::new();
    for document in documents(text) {
        let value: Value = match serde_saphyr::from_str(document.text) {
            Ok(value) => value,
            Err(error) => {
                let error = error.to_string();
                findings.push(Finding {
                    file: file.to_owned(),
                    line: document.line,
                    rule: "yaml",
                    object: None,
                    field: String::new(),
                    message: error.lines().next().unwrap_or(&error).to_owned(),
                });
                continue;
            }
        };
        let is_list = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        let items = match value["items"].as_array() {
            Some(items) if is_list => items.clone(),
            _ => vec![value],
        };
        for item in items {
            if let Some(found) = object(&SCHEMAS, &item, now) {
                checked += 1;
                let title = title(&item);
                for (rule, field, message) in found {
                    findings.push(Finding {
                        file: file.to_owned(),
                        line: document.line + line_of(document.text, &field),
                        rule,
                        object: Some(title.clone()),
                        field,
                        message,
                    });
                }
            }
        }
    }
    (checked, findings)
}

/// Returns the kind and the name of an object.
fn title(object: &Value) -> String {
    let name = object["metadata"]["name"]
        .as_str()
        .or(object["metadata"]["generateName"].as_str())
        .unwrap_or("without a name");
    match object["kind"].as_str() {
        Some(kind) => format!("{kind} {name}"),
        None => format!(" {name}"),
    }
}

/// Returns the errors of an object; `None` if it is not an object of oz.
fn object(schemas: &Schemas, object: &Value, now: Timestamp) -> Option<Found> {
    let version = object["apiVersion"].as_str();
    let kind = object["kind"].as_str();
    let Some((group, version)) = version.and_then(|version| version.split_once('/')) else {
        // A kind of the core group.
        return astray(schemas, "", kind?);
    };
    if group == example_com::GROUP {
        return published(version, kind?, object, now);
    }
    let Some(kinds) = schemas.get(group) else {
        return astray(schemas, group, kind?);
    };
    let named = kind.and_then(|kind| kinds.get_key_value(kind));
    let Some((kind, schema)) = named else {
        let known: Vec<&str> = kinds.keys().map(String::as_str).collect();
        let message = match (group, kind) {
            (composites::GROUP, Some(DECORATOR)) => NO_DECORATORS.to_owned(),
            // MetaController has kinds that only it writes.
            (composites::GROUP, _) => return None,
            _ => format!("must be one of {VERSION}: {}", known.join(", ")),
        };
        return Some(vec![("kind", "kind".to_owned(), message)]);
    };
    if version != schema.version {
        let message = format!("must be {group}/{}", schema.version);
        return Some(vec![("kind", "apiVersion".to_owned(), message)]);
    }
    let mut found = shaped(&schema.schema, object);
    // Rules read typed objects, and an object that violates the schema cannot be one.
    if found.is_empty()
        && let Some(kind) = registered(group, kind)
    {
        add_checked(check_rules(&kind, object.clone(), now), "spec", &mut found);
        if found.is_empty() {
            expressions::check(&kind, object, &mut found);
            composites::check(&kind, object, &mut found);
        }
    }
    Some(found)
}

/// Returns the differences between an object and its schema.
fn shaped(schema: &Value, object: &Value) -> Found {
    let mut found = Found::new();
    metadata::check(object, &mut found);
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    only(&fields, object, &mut found);
    match object.get("spec") {
        Some(value) => structure(&schema["properties"]["spec"], value, "spec", &mut found),
        None => found.push(("schema", "spec".to_owned(), "is required".to_owned())),
    }
    found
}

/// Finds top-level fields that are neither in every object nor in this list.
fn only(fields: &[&str], object: &Value, found: &mut Found) {
    let known = [&["apiVersion", "kind", "metadata"], fields].concat();
    let names = object.as_object().into_iter().flatten();
    for (name, _) in names.filter(|(name, _)| !known.contains(&name.as_str())) {
        found.push(("schema", name.clone(), unknown(name, &known)));
    }
}

/// Checks the two kinds in their published group. Other kinds of that group, which any project may
/// use, are not of oz.
fn published(version: &str, kind: &str, object: &Value, now: Timestamp) -> Option<Found> {
    let kind = registered(example_com::GROUP, kind)?;
    if version != example_com::VERSION {
        let message = format!("must be {}/{}", example_com::GROUP, example_com::VERSION);
        return Some(vec![("kind", "apiVersion".to_owned(), message)]);
    }
    let mut found = Found::new();
    metadata::check(object, &mut found);
    let fields = ["validFrom", "validUntil", "roleRef", "subjects", "status"];
    only(&fields, object, &mut found);
    if found.is_empty() {
        let violations = check_rules(&kind, object.clone(), now);
        add_checked(violations, "metadata", &mut found);
    }
    Some(found)
}

fn registered(group: &str, kind: &str) -> Option<Entry> {
    let mut all = kinds::all().into_iter();
    all.find(|entry| entry.resource.group == group && entry.resource.kind == kind)
}

/// Returns an error for a kind of oz under a group other than oz's. It is assumed to be of another
/// project, unless only oz has such a kind, or the group resembles oz's.
fn astray(schemas: &Schemas, group: &str, kind: &str) -> Option<Found> {
    let is_meant = group.contains("wizardofoz") || kind.contains("Access");
    let is_ours = schemas
        .get(GROUP)
        .is_some_and(|kinds| kinds.contains_key(kind));
    (is_ours && is_meant).then(|| {
        let message = format!("must be {GROUP}/{VERSION}");
        vec![("kind", "apiVersion".to_owned(), message)]
    })
}

/// The kinds that are checked, by group and name.
type Schemas = BTreeMap<String, BTreeMap<String, Schema>>;

/// The definition of a kind.
struct Schema {
    version: String,
    schema: Value,
}

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(schemas);

fn schemas() -> Schemas {
    let mut all = Schemas::new();
    for crd in kinds::all()
        .into_iter()
        .filter_map(|kind| kind.definition())
    {
        let Some(version) = crd.spec.versions.into_iter().next() else {
            continue;
        };
        let schema = version.schema.and_then(|schema| schema.open_api_v3_schema);
        let Ok(schema) = serde_json::to_value(schema) else {
            continue;
        };
        let version = version.name;
        let kinds = all.entry(crd.spec.group).or_default();
        kinds.insert(crd.spec.names.kind, Schema { version, schema });
    }
    all
}
