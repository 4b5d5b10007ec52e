//! The checks of the fields of a declaration that both kinds of declarations have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use kube::core::Selector;
use oz_api::RBAC_GROUP;
use oz_core::validate::Violation;
use serde::Serialize;

use crate::kind::{KindName, is_kind};

/// API groups of objects that cannot be parents or children: the groups on which oz relies, and those that affect every
/// request to the API server.
const RESERVED_GROUPS: [&str; 4] = [
    oz_api::GROUP,
    oz_api::composite::GROUP,
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
];

/// Returns the name of a source, or the beginning of the name that the API server is going to give it.
pub(crate) fn name_of(metadata: &ObjectMeta, violations: &mut Vec<Violation>) -> Option<String> {
    let name = metadata.name.as_ref().or(metadata.generate_name.as_ref());
    if name.is_none() {
        violations.push(Violation::new("metadata.name", "is missing"));
    }
    name.cloned()
}

/// Returns the form of a source that functions receive: without its status and managed fields.
pub(crate) fn as_told<S: Resource + Clone + Serialize>(source: &S) -> serde_json::Value {
    let mut source = source.clone();
    source.meta_mut().managed_fields = None;
    let mut told = serde_json::to_value(source).unwrap_or_default();
    if let Some(fields) = told.as_object_mut() {
        fields.remove("status");
    }
    told
}

/// Returns the selector of the parents.
pub(crate) fn parents(
    selector: Option<&LabelSelector>,
    field: &str,
    violations: &mut Vec<Violation>,
) -> Selector {
    match selector.cloned().map(Selector::try_from) {
        Some(Ok(selector)) => selector,
        Some(Err(error)) => {
            let message = format!("is not a label selector: {error}");
            violations.push(Violation::new(field, message));
            Selector::default()
        }
        None => Selector::default(),
    }
}

pub(crate) fn reserved(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    if kind.resource.is_empty() || kind.api_version.is_empty() {
        violations.push(Violation::new(field, "names no kind"));
    }
    if !is_kind(kind) {
        violations.push(Violation::new(
            field,
            format!("{kind} is not a kind with a plural name"),
        ));
    }
    if RESERVED_GROUPS.contains(&kind.group()) || kind.resource == "customresourcedefinitions" {
        let message = format!("{kind} is reserved: composites neither read nor write it");
        violations.push(Violation::new(field, message));
    }
}

/// Checks a kind of parent. Roles and bindings cannot be parents: a function derives rights from its parent, and must
/// not derive them from existing rights.
pub(crate) fn reserved_parent(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    reserved(kind, field, violations);
    if kind.group() == RBAC_GROUP {
        let message = format!("{kind} is reserved: it can be a child, but not a parent");
        violations.push(Violation::new(field, message));
    }
}
