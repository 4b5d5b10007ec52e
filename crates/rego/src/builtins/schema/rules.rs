//! A compiled schema: nodes, which refer to each other by their positions, since schemas refer to themselves.

use regex::Regex;
use regorus::Value;

/// The maximum depth of the evaluation of a schema: of its nesting, its references and the document together.
pub(super) const MAX_DEPTH: usize = 256;

/// The position of a node.
pub(super) type Id = usize;

/// The nodes of a schema; the first one is its root.
pub(super) type Nodes = Vec<Node>;

/// A schema within a schema.
pub(super) enum Node {
    /// `true` or `false`.
    Pass(bool),
    /// `$ref`.
    Reference(Id),
    Rules(Box<Rules>),
}

/// The rules of one schema, by the kind of value to which they apply.
#[derive(Default)]
pub(super) struct Rules {
    /// The types of its values; empty for all.
    pub(super) types: Vec<&'static str>,
    pub(super) combined: Combined,
    pub(super) common: Common,
    pub(super) numbers: Numbers,
    pub(super) texts: Texts,
    pub(super) arrays: Arrays,
    pub(super) objects: Objects,
}

/// Schemas that are combined.
#[derive(Default)]
pub(super) struct Combined {
    pub(super) any_of: Vec<Id>,
    pub(super) one_of: Vec<Id>,
    pub(super) all_of: Vec<Id>,
    pub(super) not: Option<Id>,
    pub(super) dependencies: Vec<(String, Dependency)>,
    pub(super) condition: Option<Id>,
    pub(super) then: Option<Id>,
    pub(super) otherwise: Option<Id>,
}

/// What an object with a key requires.
pub(super) enum Dependency {
    Keys(Vec<String>),
    Schema(Id),
}

/// Rules for values of all types.
#[derive(Default)]
pub(super) struct Common {
    pub(super) constant: Option<Value>,
    pub(super) allowed: Option<Vec<Value>>,
    pub(super) format: Option<String>,
}

/// Rules for numbers.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) multiple_of: Option<Value>,
    pub(super) minimum: Option<Value>,
    pub(super) above: Option<Value>,
    pub(super) maximum: Option<Value>,
    pub(super) below: Option<Value>,
}

/// Rules for texts.
#[derive(Default)]
pub(super) struct Texts {
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    /// The pattern as it was written, and compiled.
    pub(super) pattern: Option<(String, Regex)>,
}

/// Schemas of the items of an array.
#[derive(Default)]
pub(super) enum Items {
    #[default]
    Any,
    /// The schema of each item.
    Each(Id),
    /// The schemas of the first items.
    First(Vec<Id>),
}

/// The schema of what no other rule describes.
#[derive(Default)]
pub(super) enum Additional {
    #[default]
    Any,
    None,
    Schema(Id),
}

/// Rules for arrays.
#[derive(Default)]
pub(super) struct Arrays {
    pub(super) items: Items,
    pub(super) additional: Additional,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) unique: bool,
    pub(super) contains: Option<Id>,
}

/// Rules for objects.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) properties: Vec<(String, Id)>,
    pub(super) patterns: Vec<(Regex, Id)>,
    pub(super) additional: Additional,
    pub(super) names: Option<Id>,
}
