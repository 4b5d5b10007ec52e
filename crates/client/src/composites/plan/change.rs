//! The changes of a plan, field by field.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::core::{ApiResource, DynamicObject};
use oz_core::controller::{Key, Live, Plan, Reference, Step};
use serde::Serialize;
use serde_json::{Map, Value};

/// A change of a child.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What happens to it.
    pub kind: Kind,
    /// The group and version.
    pub api_version: String,
    /// The kind of object.
    pub object_kind: String,
    /// The namespace; `None` for an object that is cluster-scoped.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The fields that differ; for a new object, all that the function names.
    pub fields: Vec<Field>,
}

/// What happens to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// It is created.
    Create,
    /// Some of its fields change.
    Change,
    /// It is deleted, and created again.
    Replace,
    /// It is deleted.
    Delete,
    /// It gets its controller.
    Adopt,
    /// It loses its controller.
    Release,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    /// The path, such as `spec.replicas`.
    pub path: String,
    /// The live value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// Returns the changes of a plan to a parent and to these live objects.
pub(super) fn changes(plan: &Plan, parent: &Live, live: &[Live]) -> Vec<Change> {
    let live: BTreeMap<Key, &Live> = live.iter().map(|live| (live.key(), live)).collect();
    let mut changes: Vec<Change> = Vec::new();
    for step in plan.stages.iter().flatten() {
        match step {
            Step::Apply(child) => {
                let there = live.get(&child.key());
                let wanted = content(&child.object);
                let mut fields = Vec::new();
                let have = there.map(|live| content(&live.object));
                differences("", have.as_ref(), &wanted, &mut fields);
                let mut change = Change::new(Kind::Create, &child.resource, &child.object);
                change.fields = fields;
                let deleted = changes
                    .iter()
                    .position(|known| known.is_same_object(&change));
                match (deleted, there) {
                    (Some(at), _) => {
                        change.kind = Kind::Replace;
                        changes.remove(at);
                    }
                    (None, Some(_)) => change.kind = Kind::Change,
                    (None, None) => {}
                }
                changes.push(change);
            }
            Step::Delete(reference) => changes.extend(of(Kind::Delete, reference, &live)),
            Step::Adopt(reference, _) => changes.extend(of(Kind::Adopt, reference, &live)),
            Step::Disown(reference) => changes.extend(of(Kind::Release, reference, &live)),
            Step::DeleteSelf => {
                changes.push(Change::new(Kind::Delete, &parent.resource, &parent.object));
            }
            _ => {}
        }
    }
    changes
}

fn of(kind: Kind, reference: &Reference, live: &BTreeMap<Key, &Live>) -> Option<Change> {
    let found = live.get(&reference.key())?;
    Some(Change::new(kind, &found.resource, &found.object))
}

impl Change {
    fn new(kind: Kind, resource: &ApiResource, object: &DynamicObject) -> Self {
        Self {
            kind,
            api_version: resource.api_version.clone(),
            object_kind: resource.kind.clone(),
            namespace: object.metadata.namespace.clone(),
            name: object.name_any(),
            fields: Vec::new(),
        }
    }

    fn is_same_object(&self, other: &Self) -> bool {
        self.kind == Kind::Delete
            && (&self.api_version, &self.object_kind) == (&other.api_version, &other.object_kind)
            && (&self.namespace, &self.name) == (&other.namespace, &other.name)
    }
}

/// Returns the content that a user sees: without what oz and the API server write for themselves.
fn content(object: &DynamicObject) -> Value {
    let mut content = match &object.data {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    let metadata = &object.metadata;
    let mut shown = Map::new();
    for (name, texts) in [
        ("labels", &metadata.labels),
        ("annotations", &metadata.annotations),
    ] {
        let texts = texts.iter().flatten();
        let texts = texts.filter(|(key, _)| !key.contains("oz.wizardofoz.co/"));
        let texts: Map<String, Value> = texts
            .map(|(key, text)| (key.clone(), Value::from(text.as_str())))
            .collect();
        if !texts.is_empty() {
            shown.insert(name.to_owned(), texts.into());
        }
    }
    if !shown.is_empty() {
        content.insert("metadata".to_owned(), shown.into());
    }
    Value::Object(content)
}

/// Adds the fields of `wanted` that `have` has not, or has with another value.
fn differences(path: &str, have: Option<&Value>, wanted: &Value, fields: &mut Vec<Field>) {
    match (have, wanted) {
        (Some(have), wanted) if have == wanted => {}
        (have, Value::Object(wanted)) if !wanted.is_empty() => {
            for (name, value) in wanted {
                let below = match path {
                    "" => name.clone(),
                    path if name.contains(['.', '/']) => format!("{path}[{name}]"),
                    path => format!("{path}.{name}"),
                };
                differences(&below, have.and_then(|have| have.get(name)), value, fields);
            }
        }
        (Some(Value::Array(have)), Value::Array(wanted)) if have.len() == wanted.len() => {
            for (at, (have, wanted)) in have.iter().zip(wanted).enumerate() {
                differences(&format!("{path}[{at}]"), Some(have), wanted, fields);
            }
        }
        (have, wanted) => fields.push(Field {
            path: path.to_owned(),
            from: have.cloned(),
            to: Some(wanted.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_the_fields_that_the_function_names() {
        let have = json!({
            "data": {"a": "1", "kept": "2"}, "spec": {"list": [1, 2], "other": [{"x": 1, "y": 2}]},
            "metadata": {"labels": {"app.kubernetes.io/name": "a"}},
        });
        let wanted = json!({
            "data": {"a": "2", "new": "3"}, "spec": {"list": [1], "other": [{"x": 2}]},
            "metadata": {"labels": {"app.kubernetes.io/name": "b"}},
        });
        let mut fields = Vec::new();
        differences("", Some(&have), &wanted, &mut fields);
        let found: Vec<String> = fields
            .iter()
            .map(|field| {
                let text = |value: &Option<Value>| {
                    value
                        .as_ref()
                        .map_or("nothing".to_owned(), ToString::to_string)
                };
                format!(
                    "{}: {} -> {}",
                    field.path,
                    text(&field.from),
                    text(&field.to)
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                r#"data.a: "1" -> "2""#,
                r#"data.new: nothing -> "3""#,
                r#"metadata.labels[app.kubernetes.io/name]: "a" -> "b""#,
                "spec.list: [1,2] -> [1]",
                "spec.other[0].x: 1 -> 2",
            ]
        );
    }
}
