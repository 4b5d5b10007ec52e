//! The conversion of a function's response into the desired children of a parent: each has a declared kind, a location
//! where the parent may have children, the owner reference and labels of the parent, and none of the fields that a
//! function must not set.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicObject, Selector, SelectorExt};
use oz_api::{encode, labels};
use oz_core::controller::{Child, Key};
use serde_json::Value;

use super::claim::controller_reference;
use super::declared::{Declared, Family};
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

/// Returns the desired children of a parent.
///
/// # Errors
/// The defect of the first invalid child. Nothing is changed then: half of a response may be worse than none.
pub fn desired(
    declared: &Declared,
    family: &Family,
    parent: &DynamicObject,
    selector: &Selector,
    named: &[Value],
) -> Result<Vec<Child>, String> {
    let mut children = Vec::with_capacity(named.len());
    let mut keys: BTreeSet<Key> = BTreeSet::new();
    for (index, value) in named.iter().enumerate() {
        let child = one(declared, family, parent, selector, value)
            .map_err(|error| format!("child {index} {error}"))?;
        if !keys.insert(child.key()) {
            return Err(format!("child {index} is {} once more", child.key()));
        }
        children.push(child);
    }
    Ok(children)
}

fn one(
    declared: &Declared,
    family: &Family,
    parent: &DynamicObject,
    selector: &Selector,
    value: &Value,
) -> Result<Child, String> {
    let Some(fields) = value.as_object() else {
        return Err(format!("is {}, not an object", kind_of(value)));
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some((placed, _)) = family.child(api_version, kind) else {
        return Err(format!(
            "is of kind {kind:?} in {api_version:?}, which is not among spec.childResources"
        ));
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
    let mut metadata: ObjectMeta = serde_json::from_value(metadata)
        .map_err(|error| format!("has metadata that are none: {error}"))?;
    let name = metadata.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(format!("is a {kind} without a name"));
    }
    let title = format!("({kind} {name})");
    match (&metadata.namespace, &parent.metadata.namespace) {
        (_, Some(_)) if placed.cluster_scoped => {
            return Err(format!(
                "{title} is outside of namespaces; a parent in a namespace has its children there"
            ));
        }
        (Some(namespace), Some(own)) if namespace != own => {
            return Err(format!(
                "{title} is in namespace {namespace}; a parent in {own} has its children there"
            ));
        }
        (None, Some(own)) => metadata.namespace = Some(own.clone()),
        (None, None) if !placed.cluster_scoped => {
            return Err(format!(
                "{title} has no namespace, and neither has its parent"
            ));
        }
        (Some(_), None) if placed.cluster_scoped => metadata.namespace = None,
        _ => {}
    }
    not_ours(&mut metadata).map_err(|error| format!("{title} {error}"))?;
    let labels = metadata.labels.get_or_insert_default();
    if declared.generate_selector {
        let uid = parent.metadata.uid.clone().unwrap_or_default();
        labels.insert(labels::CONTROLLER_UID.to_owned(), uid);
    }
    if !selector.matches(labels) {
        return Err(format!(
            "{title} does not have the labels by which its parent selects its children ({selector})"
        ));
    }
    let uid = parent.metadata.uid.as_deref().unwrap_or_default();
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|owner| owner.uid != uid);
    if owners.iter().any(|owner| owner.controller == Some(true)) {
        return Err(format!("{title} names another controller"));
    }
    owners.push(controller_reference(family, parent));
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
/// adoption. Rejects other labels and annotations of oz: they identify the objects of oz.
fn not_ours(metadata: &mut ObjectMeta) -> Result<(), String> {
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
    match reserved {
        None => Ok(()),
        Some((name, _)) => Err(format!("has {name}, which only oz may write")),
    }
}
