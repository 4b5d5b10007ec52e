//! The requests to a function and its responses, in the form of MetaController's hooks.
//! See <https://metacontroller.github.io/metacontroller/api/hook.html>.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use oz_api::composite::{HookVersion, MAX_CHILDREN};
use oz_core::controller::Live;
use serde_json::{Map, Value, json};

use super::answer::AnswerError;
use super::declared::{Declared, Family, Placed};
use super::related::Related;
use super::value::kind_of;

/// The maximum length of a response that is read, in bytes.
pub const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Returns the request to a function about one parent.
#[must_use]
pub fn request(
    declared: &Declared,
    family: &Family,
    version: HookVersion,
    parent: &DynamicObject,
    children: &[Live],
    related: &[Related],
    finalizing: bool,
) -> Value {
    json!({
        "controller": declared.controller,
        "parent": whole(parent, &family.parent),
        "children": by_kind(family, version, children),
        "related": by_rule(family, version, parent, related),
        "finalizing": finalizing,
    })
}

/// Returns the children by kind and name. Every declared kind is included, also without children.
fn by_kind(family: &Family, version: HookVersion, children: &[Live]) -> Value {
    let mut kinds = Map::new();
    for (placed, _) in &family.children {
        let resource = &placed.resource;
        let of_kind = children.iter().filter(|child| child.resource == *resource);
        let of_kind = of_kind.filter_map(|child| {
            let name = name(family, version, placed, &child.object)?;
            Some((name, whole(&child.object, placed)))
        });
        let key = format!("{}.{}", resource.kind, resource.api_version);
        kinds.insert(key, Value::Object(of_kind.collect()));
    }
    Value::Object(kinds)
}

/// Returns the request for the related objects of this parent.
#[must_use]
pub fn customizing(declared: &Declared, family: &Family, parent: &DynamicObject) -> Value {
    json!({
        "controller": declared.controller,
        "parent": whole(parent, &family.parent),
    })
}

/// Returns the related objects by kind and name. Every requested kind is included, also without objects.
fn by_rule(
    family: &Family,
    version: HookVersion,
    parent: &DynamicObject,
    related: &[Related],
) -> Value {
    let mut kinds: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for Related { kind, objects } in related {
        let resource = &kind.resource;
        let key = format!("{}.{}", resource.kind, resource.api_version);
        let of_kind = kinds.entry(key).or_default();
        of_kind.extend(objects.iter().filter_map(|object| {
            let elsewhere = object.metadata.namespace != parent.metadata.namespace;
            let version = match version {
                // In another namespace, a name is unique only with its namespace.
                HookVersion::V1 if elsewhere => HookVersion::V2,
                version => version,
            };
            let name = name(family, version, kind, object)?;
            Some((name, whole(object, kind)))
        }));
    }
    json!(kinds)
}

/// Returns the name of a stored object, with its namespace where the parent's scope leaves it open.
fn name(
    family: &Family,
    version: HookVersion,
    placed: &Placed,
    object: &DynamicObject,
) -> Option<String> {
    let name = object.metadata.name.clone()?;
    let qualified = match version {
        HookVersion::V1 => family.parent.cluster_scoped && !placed.cluster_scoped,
        HookVersion::V2 => !placed.cluster_scoped,
    };
    Some(match &object.metadata.namespace {
        Some(namespace) if qualified => format!("{namespace}/{name}"),
        _ => name,
    })
}

/// Returns an object with its API version and kind, which lists omit.
fn whole(object: &DynamicObject, placed: &Placed) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".into(), json!(placed.resource.api_version));
        fields.insert("kind".into(), json!(placed.resource.kind));
    }
    value
}

/// The response of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The status of the parent; `None` if it does not change.
    pub status: Option<Map<String, Value>>,
    /// The desired children of the parent.
    pub children: Vec<Value>,
    /// The time until the next call, in seconds; once.
    pub resync_after: Option<f64>,
    /// True if no work is left for a parent that is being deleted.
    pub finalized: bool,
}

/// The fields of a response.
const FIELDS: [&str; 4] = ["status", "children", "resyncAfterSeconds", "finalized"];

impl Answer {
    /// Reads a response.
    ///
    /// # Errors
    /// If the response is invalid. The error names the defect.
    pub fn read(answer: &Value, strict: bool) -> Result<Self, AnswerError> {
        let Some(fields) = answer.as_object() else {
            return Err(AnswerError::NotAnObject {
                kind: kind_of(answer),
            });
        };
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str()))
            && strict
        {
            let field = unknown.clone();
            return Err(AnswerError::UnknownField { field });
        }
        let wrong = |field, value: &Value| AnswerError::FieldType {
            field,
            kind: kind_of(value),
        };
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let status = match field("status") {
            None => None,
            Some(Value::Object(status)) => Some(status.clone()),
            Some(other) => return Err(wrong("status", other)),
        };
        let children = match field("children") {
            None => Vec::new(),
            Some(Value::Array(children)) => children.clone(),
            Some(other) => return Err(wrong("children", other)),
        };
        if children.len() > MAX_CHILDREN {
            let count = children.len();
            return Err(AnswerError::TooManyChildren {
                count,
                most: MAX_CHILDREN,
            });
        }
        let resync_after = match field("resyncAfterSeconds") {
            None => None,
            Some(seconds) => match seconds.as_f64() {
                Some(seconds) => Some(seconds).filter(|seconds| *seconds > 0.0),
                None => return Err(AnswerError::Resync),
            },
        };
        let finalized = match field("finalized") {
            None => false,
            Some(Value::Bool(finalized)) => *finalized,
            Some(other) => {
                let kind = kind_of(other);
                return Err(AnswerError::Finalized { kind });
            }
        };
        Ok(Self {
            status,
            children,
            resync_after,
            finalized,
        })
    }
}
