//! The nodes of a syntax tree, as values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use regorus::Value;

use super::super::bounds::{Excess, MAX_ITEMS};
use super::super::operand::Failure;

/// The types of terms, in the order in which OPA sorts them.
const TYPES: [&str; 13] = [
    "null",
    "boolean",
    "number",
    "string",
    "var",
    "ref",
    "array",
    "object",
    "set",
    "arraycomprehension",
    "objectcomprehension",
    "setcomprehension",
    "call",
];

/// The state of a translation.
#[derive(Default)]
pub(super) struct Tree {
    /// The number of `_` that have a name.
    wildcards: usize,
    nodes: usize,
}

impl Tree {
    /// Returns a new name for `_`.
    pub(super) fn wildcard(&mut self) -> String {
        let name = format!("${}", self.wildcards);
        self.wildcards += 1;
        name
    }

    /// Counts a node.
    pub(super) fn count(&mut self) -> Result<(), Failure> {
        self.nodes += 1;
        if self.nodes > MAX_ITEMS {
            return Err(Excess::Elements.into());
        }
        Ok(())
    }
}

pub(super) fn string(text: &str) -> Value {
    Value::from(text)
}

pub(super) fn array(items: Vec<Value>) -> Value {
    Value::from(items)
}

pub(super) fn object<'k>(fields: impl IntoIterator<Item = (&'k str, Value)>) -> Value {
    let fields = fields.into_iter();
    let fields: BTreeMap<Value, Value> = fields
        .map(|(key, value)| (Value::from(key), value))
        .collect();
    Value::from(fields)
}

/// Returns a term: its type, and its value.
pub(super) fn term(kind: &str, value: Value) -> Value {
    object([("type", string(kind)), ("value", value)])
}

/// Returns a reference from its parts.
pub(super) fn reference(parts: Vec<Value>) -> Value {
    term("ref", array(parts))
}

/// Returns the reference to a function of OPA.
pub(super) fn function(name: &str) -> Value {
    let names = name.split('.').enumerate();
    let parts = names.map(|(at, name)| term(if at == 0 { "var" } else { "string" }, string(name)));
    reference(parts.collect())
}

/// Compares terms as OPA sorts them in sets and objects.
pub(super) fn compare(one: &Value, other: &Value) -> Ordering {
    let rank = |term: &Value| TYPES.iter().position(|kind| term["type"] == string(kind));
    let by_value = || one["value"].cmp(&other["value"]);
    rank(one).cmp(&rank(other)).then_with(by_value)
}
