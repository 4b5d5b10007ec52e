//! A block of comments that begins with `# METADATA`, and what it says in YAML.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::builtins;
use crate::tokens;

/// The beginning of the first comment.
const BEGIN: &str = "METADATA";

/// A message about annotations that cannot be used.
pub(super) struct Invalid(pub(super) String);

/// The statements to which annotations apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Rule,
    Document,
    Package,
    Subpackages,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "rule",
            Self::Document => "document",
            Self::Package => "package",
            Self::Subpackages => "subpackages",
        })
    }
}

/// The text of a block.
pub(super) struct Raw {
    /// The line of its first comment, from 1.
    pub(super) line: u32,
    text: String,
}

/// A block of annotations.
pub(super) struct Block {
    pub(super) line: u32,
    /// The scope, if the block names one.
    pub(super) scope: Option<Scope>,
    /// The fields, as a policy sees them.
    pub(super) fields: Map<String, Value>,
}

impl Block {
    pub(super) fn value(&self) -> Value {
        Value::from(self.fields.clone())
    }
}

/// Returns the blocks of a module.
pub(super) fn blocks(text: &str) -> Vec<Raw> {
    let inside = lines_of_texts(text);
    let mut blocks: Vec<Raw> = Vec::new();
    let mut is_open = false;
    for (line, content) in (1..).zip(text.lines()) {
        let comment = content
            .strip_prefix('#')
            .filter(|_| !inside.contains(&line));
        let Some(comment) = comment else {
            is_open = false;
            continue;
        };
        if comment.trim().starts_with(BEGIN) {
            let text = String::new();
            blocks.push(Raw { line, text });
            is_open = true;
        } else if let Some(block) = blocks.last_mut().filter(|_| is_open) {
            let comment = comment.strip_prefix(' ').unwrap_or(comment);
            block.text.push_str(comment);
            block.text.push('\n');
        }
    }
    blocks
}

/// Returns the lines that begin inside of a text.
fn lines_of_texts(text: &str) -> BTreeSet<u32> {
    let tokens = tokens::tokens(text).into_iter();
    let lines = tokens.flat_map(|token| {
        let breaks = token.text.bytes().filter(|byte| *byte == b'\n').count();
        let breaks = u32::try_from(breaks).unwrap_or(u32::MAX);
        token.line + 1..=token.line.saturating_add(breaks)
    });
    lines.collect()
}

impl Raw {
    /// Reads the fields of the block.
    pub(super) fn parse(&self) -> Result<Block, Invalid> {
        if self.text.trim().is_empty() {
            return invalid("expected METADATA block, found whitespace");
        }
        let read = builtins::yaml_document(&self.text);
        let read = read.map_err(|error| Invalid(format!("annotations cannot be read: {error}")))?;
        let Value::Object(read) = read else {
            return invalid("annotations are an object of YAML");
        };
        let mut scope = None;
        let mut fields = Map::new();
        for (key, value) in read {
            if value.is_null() {
                continue;
            }
            let value = match key.as_str() {
                "scope" => {
                    scope = read_scope(&value)?;
                    continue;
                }
                "title" | "description" if value.is_string() => value,
                "entrypoint" if value.is_boolean() => value,
                "organizations" if is_list_of_texts(&value) => value,
                "custom" | "labels" if value.is_object() => value,
                "related_resources" => each(value, related_resource)?,
                "authors" => each(value, author)?,
                "schemas" => each(value, schema)?,
                "title" | "description" | "entrypoint" | "organizations" | "custom" | "labels" => {
                    return invalid(format!("annotation `{key}` has a value of another type"));
                }
                _ => continue,
            };
            if !is_empty(&value) {
                fields.insert(key, value);
            }
        }
        let line = self.line;
        Ok(Block {
            line,
            scope,
            fields,
        })
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid(message.into()))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Number(_) => false,
    }
}

fn read_scope(value: &Value) -> Result<Option<Scope>, Invalid> {
    match value.as_str() {
        Some("") => Ok(None),
        Some("rule") => Ok(Some(Scope::Rule)),
        Some("document") => Ok(Some(Scope::Document)),
        Some("package") => Ok(Some(Scope::Package)),
        Some("subpackages") => Ok(Some(Scope::Subpackages)),
        _ => invalid(format!(
            "invalid annotation scope {value}. Use one of 'rule', 'document', 'package', or 'subpackages'"
        )),
    }
}

fn is_list_of_texts(value: &Value) -> bool {
    let items = value.as_array();
    items.is_some_and(|items| items.iter().all(Value::is_string))
}

/// Reads a list of annotations.
fn each(value: Value, read: fn(&Value) -> Result<Value, Invalid>) -> Result<Value, Invalid> {
    match value {
        Value::Array(items) => items.iter().map(read).collect(),
        _ => invalid("an annotation that is a list has a value of another type"),
    }
}

/// Returns an object of the texts that exist.
fn of_texts<const N: usize>(texts: [(&str, Option<&str>); N]) -> Value {
    let texts = texts.into_iter();
    let texts = texts.filter_map(|(key, text)| Some((key.to_owned(), json!(text?))));
    Value::from_iter(texts)
}

/// Returns a text that is not empty.
fn part<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    some(value[key].as_str()?.trim())
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn related_resource(value: &Value) -> Result<Value, Invalid> {
    let (reference, description) = match value {
        Value::String(reference) => (some(reference), None),
        other => (part(other, "ref"), part(other, "description")),
    };
    match reference {
        None => invalid("invalid related-resource definition: 'ref' value required"),
        _ => Ok(of_texts([("ref", reference), ("description", description)])),
    }
}

fn author(value: &Value) -> Result<Value, Invalid> {
    let Value::String(text) = value else {
        let (name, email) = (part(value, "name"), part(value, "email"));
        return match (name, email) {
            (None, None) => {
                invalid("invalid author definition: 'name' and/or 'email' values required")
            }
            _ => Ok(of_texts([("name", name), ("email", email)])),
        };
    };
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let Some(last) = words.last() else {
        return invalid("invalid author definition: author is an empty string");
    };
    let email = last
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'));
    if email.is_some() {
        words.pop();
    }
    let name = words.join(" ");
    let email = email.and_then(some);
    Ok(of_texts([("name", some(&name)), ("email", email)]))
}

/// Reads a schema: a path, with the reference of a schema or its definition.
fn schema(value: &Value) -> Result<Value, Invalid> {
    let first = value.as_object().and_then(|pair| pair.iter().next());
    let Some((path, schema)) = first else {
        return invalid("invalid document reference");
    };
    let mut read = Map::new();
    read.insert("path".to_owned(), reference(path)?);
    match schema {
        Value::String(name) if name == "schema" || name.starts_with("schema.") => {
            read.insert("schema".to_owned(), reference(name)?);
        }
        Value::Object(_) => {
            read.insert("definition".to_owned(), schema.clone());
        }
        Value::String(_) => return invalid("invalid schema reference"),
        _ => {
            return invalid(format!("invalid schema declaration for path \"{path}\""));
        }
    }
    Ok(Value::from(read))
}

/// Returns the names of a reference.
fn reference(text: &str) -> Result<Value, Invalid> {
    let is_name = |name: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(is_part)
    };
    let names: Vec<&str> = text.split('.').collect();
    match names.iter().all(|name| is_name(name)) {
        true => Ok(json!(names)),
        false => invalid("invalid document reference"),
    }
}
