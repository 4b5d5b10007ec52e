//! The violations of a schema, as OPA describes them.

use std::collections::BTreeMap;
use std::rc::Rc;

use regorus::Value;

use super::super::bounds::{Excess, MAX_TEXT};
use super::super::operand::Answer;
use super::super::plain::json;
use super::number::written;

/// The position of a value in a document.
pub(super) struct Path {
    pub(super) name: String,
    pub(super) parent: Option<Rc<Self>>,
}

impl Path {
    pub(super) fn root() -> Rc<Self> {
        Rc::new(Self {
            name: "(Root)".to_owned(),
            parent: None,
        })
    }

    /// Returns the names of the path without the root, or the root.
    fn field(&self) -> String {
        let mut names = vec![self.name.as_str()];
        let mut above = self.parent.as_ref();
        while let Some(path) = above {
            names.push(&path.name);
            above = path.parent.as_ref();
        }
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        names.join(".")
    }
}

/// A violation, with its position.
pub(super) struct Found<'s> {
    pub(super) path: Rc<Path>,
    pub(super) fault: Fault<'s>,
}

/// A violation of a rule.
pub(super) enum Fault<'s> {
    False,
    Type(&'s [&'static str], &'static str),
    AnyOf,
    OneOf,
    AllOf,
    Not,
    Dependency(&'s str),
    Then,
    Else,
    Const(&'s Value),
    Enum(&'s [Value]),
    Format(&'s str),
    MultipleOf(&'s Value),
    Minimum(&'s Value),
    Above(&'s Value),
    Maximum(&'s Value),
    Below(&'s Value),
    MinLength(i64),
    MaxLength(i64),
    Pattern(&'s str),
    AdditionalItems,
    MinItems(i64),
    MaxItems(i64),
    Unique(usize, usize),
    Contains,
    MinProperties(i64),
    MaxProperties(i64),
    Required(&'s str),
    AdditionalProperty(&'s str),
    PropertyName(&'s str),
}

impl Fault<'_> {
    /// Returns the name and the description of the violation.
    fn description(&self, field: &str) -> (&'static str, String) {
        if let Some((name, text)) = self.fixed() {
            return (name, text.to_owned());
        }
        match self {
            Self::Type(expected, given) => {
                let expected = match expected {
                    [one] => (*one).to_owned(),
                    all => format!("[{}]", all.join(",")),
                };
                let text = format!("Invalid type. Expected: {expected}, given: {given}");
                ("invalid_type", text)
            }
            Self::Dependency(key) => ("missing_dependency", format!("Has a dependency on {key}")),
            Self::Const(value) => ("const", format!("{field} does not match: {}", json(value))),
            Self::Enum(values) => {
                let values: Vec<String> = values.iter().map(json).collect();
                let values = values.join(", ");
                let text = format!("{field} must be one of the following: {values}");
                ("enum", text)
            }
            Self::Format(format) => ("format", format!("Does not match format '{format}'")),
            Self::Pattern(text) => ("pattern", format!("Does not match pattern '{text}'")),
            Self::Unique(one, other) => (
                "unique",
                format!("array items[{one},{other}] must be unique"),
            ),
            Self::Required(key) => ("required", format!("{key} is required")),
            Self::AdditionalProperty(key) => (
                "additional_property_not_allowed",
                format!("Additional property {key} is not allowed"),
            ),
            Self::PropertyName(key) => (
                "invalid_property_name",
                format!("Property name of \"{key}\" does not match"),
            ),
            other => other.limit(),
        }
    }

    /// Returns the description of a violation that is always the same.
    fn fixed(&self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::False => ("false", "False always fails validation"),
            Self::AnyOf => ("number_any_of", "Must validate at least one schema (anyOf)"),
            Self::OneOf => (
                "number_one_of",
                "Must validate one and only one schema (oneOf)",
            ),
            Self::AllOf => ("number_all_of", "Must validate all the schemas (allOf)"),
            Self::Not => ("number_not", "Must not validate the schema (not)"),
            Self::Then => (
                "condition_then",
                "Must validate \"then\" as \"if\" was valid",
            ),
            Self::Else => (
                "condition_else",
                "Must validate \"else\" as \"if\" was not valid",
            ),
            Self::AdditionalItems => (
                "array_no_additional_items",
                "No additional items allowed on array",
            ),
            Self::Contains => ("contains", "At least one of the items must match"),
            _ => return None,
        })
    }

    /// Returns the description of a violated limit.
    fn limit(&self) -> (&'static str, String) {
        let or_equal = "than or equal to";
        match self {
            Self::MultipleOf(of) => (
                "multiple_of",
                format!("Must be a multiple of {}", written(of)),
            ),
            Self::Minimum(min) => {
                let text = format!("Must be greater {or_equal} {}", written(min));
                ("number_gte", text)
            }
            Self::Above(min) => (
                "number_gt",
                format!("Must be greater than {}", written(min)),
            ),
            Self::Maximum(max) => {
                let text = format!("Must be less {or_equal} {}", written(max));
                ("number_lte", text)
            }
            Self::Below(max) => ("number_lt", format!("Must be less than {}", written(max))),
            Self::MinLength(min) => {
                let text = format!("String length must be greater {or_equal} {min}");
                ("string_gte", text)
            }
            Self::MaxLength(max) => {
                let text = format!("String length must be less {or_equal} {max}");
                ("string_lte", text)
            }
            Self::MinItems(min) => (
                "array_min_items",
                format!("Array must have at least {min} items"),
            ),
            Self::MaxItems(max) => (
                "array_max_items",
                format!("Array must have at most {max} items"),
            ),
            Self::MinProperties(min) => (
                "array_min_properties",
                format!("Must have at least {min} properties"),
            ),
            Self::MaxProperties(max) => (
                "array_max_properties",
                format!("Must have at most {max} properties"),
            ),
            _ => ("internal", "Internal Error".to_owned()),
        }
    }
}

/// Returns the violations as a policy sees them.
pub(super) fn described(found: &[Found<'_>]) -> Answer {
    let mut bytes = 0;
    let mut all = Vec::with_capacity(found.len());
    for one in found {
        let field = one.path.field();
        let (name, description) = one.fault.description(&field);
        let error = format!("{field}: {description}");
        bytes += 2 * error.len() + name.len();
        if bytes > MAX_TEXT {
            return Err(Excess::Text.into());
        }
        let parts = [
            ("desc", description),
            ("error", error),
            ("field", field),
            ("type", name.to_owned()),
        ];
        let parts = parts.map(|(key, text)| (Value::from(key), Value::from(text)));
        all.push(Value::from(BTreeMap::from(parts)));
    }
    Ok(Value::from(all))
}
