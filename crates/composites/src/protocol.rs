//! What a function is asked and what it answers, as MetaController's hooks have it.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use oz_api::composite::{HookVersion, MAX_CHILDREN};
use oz_core::controller::Live;
use serde_json::{Map, Value, json};

use super::declared::{Declared, Family, Placed};
use super::related::Related;
use super::value::kind_of;

/// The longest answer that is read, in bytes.
pub const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// What a function is asked about one parent.
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

/// Children by kind and name. Every kind that is declared is there, also without any.
fn by_kind(family: &Family, version: HookVersion, children: &[Live]) -> Value {
    let mut kinds = Map::new();
    for (placed, _) in &family.children {
        let resource = &placed.resource;
        let of_kind = children.iter().filter(|child| child.resource == *resource);
        let of_kind = of_kind.map(|child| {
            let name = name(family, version, placed, &child.object);
            (name, whole(&child.object, placed))
        });
        let key = format!("{}.{}", resource.kind, resource.api_version);
        kinds.insert(key, Value::Object(of_kind.collect()));
    }
    Value::Object(kinds)
}

/// Which other objects a function wants to see of this parent.
#[must_use]
pub fn customizing(declared: &Declared, family: &Family, parent: &DynamicObject) -> Value {
    json!({
        "controller": declared.controller,
        "parent": whole(parent, &family.parent),
    })
}

/// Related objects by kind and name. Every kind that was asked for is there, also without any.
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
        of_kind.extend(objects.iter().map(|object| {
            let elsewhere = object.metadata.namespace != parent.metadata.namespace;
            let version = match version {
                // No name without its namespace says which one it is.
                HookVersion::V1 if elsewhere => HookVersion::V2,
                version => version,
            };
            (name(family, version, kind, object), whole(object, kind))
        }));
    }
    json!(kinds)
}

fn name(family: &Family, version: HookVersion, placed: &Placed, object: &DynamicObject) -> String {
    let metadata = &object.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let qualified = match version {
        HookVersion::V1 => family.parent.cluster_scoped && !placed.cluster_scoped,
        HookVersion::V2 => !placed.cluster_scoped,
    };
    match &metadata.namespace {
        Some(namespace) if qualified => format!("{namespace}/{name}"),
        _ => name,
    }
}

/// An object with its API version and kind, which lists leave out.
fn whole(object: &DynamicObject, placed: &Placed) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".into(), json!(placed.resource.api_version));
        fields.insert("kind".into(), json!(placed.resource.kind));
    }
    value
}

/// What a function answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The parent's status; `None` if it is to stay.
    pub status: Option<Map<String, Value>>,
    /// The children that the parent is to have.
    pub children: Vec<Value>,
    /// After how many seconds it is to be asked again; once.
    pub resync_after: Option<f64>,
    /// Whether nothing is left to do for a parent that is being deleted.
    pub finalized: bool,
}

/// The fields of an answer.
const FIELDS: [&str; 4] = ["status", "children", "resyncAfterSeconds", "finalized"];

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(answer: &Value, strict: bool) -> Result<Self, String> {
        let Some(fields) = answer.as_object() else {
            return Err(format!("is {}, not an object", kind_of(answer)));
        };
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str()))
            && strict
        {
            return Err(format!("has the unknown field {unknown:?}"));
        }
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let status = match field("status") {
            None => None,
            Some(Value::Object(status)) => Some(status.clone()),
            Some(other) => return Err(format!("has {} as its status", kind_of(other))),
        };
        let children = match field("children") {
            None => Vec::new(),
            Some(Value::Array(children)) => children.clone(),
            Some(other) => return Err(format!("has {} as its children", kind_of(other))),
        };
        if children.len() > MAX_CHILDREN {
            let count = children.len();
            return Err(format!("has {count} children, of at most {MAX_CHILDREN}"));
        }
        let resync_after = match field("resyncAfterSeconds") {
            None => None,
            Some(seconds) => match seconds.as_f64() {
                Some(seconds) => Some(seconds).filter(|seconds| *seconds > 0.0),
                None => return Err("has a resyncAfterSeconds that is no number".to_owned()),
            },
        };
        let finalized = match field("finalized") {
            None => false,
            Some(Value::Bool(finalized)) => *finalized,
            Some(other) => return Err(format!("has {} as finalized", kind_of(other))),
        };
        Ok(Self {
            status,
            children,
            resync_after,
            finalized,
        })
    }
}
