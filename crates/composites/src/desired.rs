//! The conversion of a function's response into the desired children of a parent: each has a declared kind, a location
//! where the parent may have children, the owner reference and labels of the parent, and none of the fields that a
//! function must not set.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicObject, Selector, SelectorExt};
use oz_api::{Name, encode, labels};
use oz_core::controller::{Child, Key};
use serde_json::Value;

use super::answer::{AnswerError, ChildError};
use super::owner::{Owner, Selection};
use super::value::kind_of;

/// Annotation on a child: digest of the child as the function returned it. It distinguishes a change by the function
/// from additions by other clients.
pub const APPLIED: &str = "oz.wizardofoz.co/applied";
/// The fields of metadata that the API server sets. A function that echoes its request returns them as well.
const SYSTEM_FIELDS: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
];

/// Returns the desired children of an owner.
///
/// # Errors
/// The defect of the first invalid child. Nothing is changed then: half of a response may be worse than none.
pub(super) fn desired(
    owner: &Owner<'_>,
    selector: &Selector,
    named: &[Value],
) -> Result<Vec<Child>, AnswerError> {
    let mut children = Vec::with_capacity(named.len());
    let mut keys: BTreeSet<Key> = BTreeSet::new();
    for (index, value) in named.iter().enumerate() {
        let child = one(owner, selector, value);
        let child = child.map_err(|error| AnswerError::Child { index, error })?;
        if !keys.insert(child.key()) {
            let key = child.key();
            return Err(AnswerError::Twice { index, key });
        }
        children.push(child);
    }
    Ok(children)
}

fn one(owner: &Owner<'_>, selector: &Selector, value: &Value) -> Result<Child, ChildError> {
    let Some(fields) = value.as_object() else {
        return Err(ChildError::NotAnObject {
            kind: kind_of(value),
        });
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some((placed, _)) = owner.rules.family.child(api_version, kind) else {
        return Err(ChildError::Undeclared {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        });
    };
    let mut fields = fields.clone();
    for field in ["apiVersion", "kind", "status"] {
        fields.remove(field);
    }
    let mut metadata = fields.remove("metadata").unwrap_or_default();
    if let Some(metadata) = metadata.as_object_mut() {
        for field in SYSTEM_FIELDS {
            metadata.remove(field);
        }
    }
    let mut metadata: ObjectMeta =
        serde_json::from_value(metadata).map_err(ChildError::Metadata)?;
    let name = Name::from_metadata(&metadata).map(|name| name.to_string());
    let name = name.map_err(|_| ChildError::Nameless {
        kind: kind.to_owned(),
    })?;
    let title = format!("{kind} {name}");
    match (&metadata.namespace, &owner.object.metadata.namespace) {
        (_, Some(_)) if placed.cluster_scoped => {
            return Err(ChildError::ClusterScoped { title });
        }
        (Some(namespace), Some(own)) if namespace != own => {
            return Err(ChildError::Elsewhere {
                title,
                namespace: namespace.clone(),
                own: own.clone(),
            });
        }
        (None, Some(own)) => metadata.namespace = Some(own.clone()),
        (None, None) if !placed.cluster_scoped => {
            return Err(ChildError::NoNamespace { title });
        }
        (Some(_), None) if placed.cluster_scoped => metadata.namespace = None,
        _ => {}
    }
    if let Some(label) = take_ours(&mut metadata) {
        return Err(ChildError::Reserved { title, label });
    }
    let labels = metadata.labels.get_or_insert_default();
    if owner.rules.selection == Selection::Generated {
        labels.insert(labels::CONTROLLER_UID.to_owned(), owner.uid.to_string());
    }
    if !selector.matches(labels) {
        return Err(ChildError::Unselected {
            title,
            selector: selector.to_string(),
        });
    }
    let references = metadata.owner_references.get_or_insert_default();
    references.retain(|reference| owner.uid != *reference.uid);
    if references.iter().any(|it| it.controller == Some(true)) {
        return Err(ChildError::OtherController { title });
    }
    references.push(owner.reference());
    let mut object = DynamicObject::new(&name, &placed.resource);
    let data = Value::Object(fields);
    let digest = encode::digest(&(&metadata, &data));
    metadata
        .annotations
        .get_or_insert_default()
        .insert(APPLIED.to_owned(), digest);
    object.metadata = metadata;
    object.data = data;
    Ok(Child {
        resource: placed.resource.clone(),
        object,
    })
}

/// Removes the annotations that oz wrote from a child that a function echoes, including the annotation for its
/// adoption. Returns the first other label or annotation of oz: they identify the objects of oz.
fn take_ours(metadata: &mut ObjectMeta) -> Option<String> {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(APPLIED);
        annotations.remove(super::ends::UNTIL);
        annotations.remove(super::adoption::ADOPTABLE_BY);
    }
    let labels = metadata.labels.iter().flatten();
    let mut all = labels.chain(metadata.annotations.iter().flatten());
    let reserved = all.find(|(name, value)| {
        labels::is_own(name) || (*name == labels::MANAGED_BY && *value == labels::OZ)
    });
    reserved.map(|(name, _)| name.clone())
}
