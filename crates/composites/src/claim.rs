//! The children of a parent: the objects that it controls and selects, that it may adopt, and that it must release.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{DynamicObject, Selector, SelectorExt};
use oz_api::labels;
use oz_core::controller::Live;

use super::declared::{Declared, Family};

/// Returns the label selector for the children of a parent.
///
/// # Errors
/// If the parent has no selector. The error states the reason.
pub(super) fn selector(declared: &Declared, parent: &DynamicObject) -> Result<Selector, String> {
    if declared.generate_selector {
        let uid = parent.metadata.uid.clone().unwrap_or_default();
        let label = (labels::CONTROLLER_UID.to_owned(), uid);
        return Ok(Selector::from_iter([label]));
    }
    let spec = parent.data.pointer("/spec/selector");
    let spec = spec.ok_or("has no spec.selector, and the composite has no generateSelector")?;
    let selector: LabelSelector = serde_json::from_value(spec.clone())
        .map_err(|error| format!("has a spec.selector that is no label selector: {error}"))?;
    let selector = Selector::try_from(selector)
        .map_err(|error| format!("has a spec.selector that is no label selector: {error}"))?;
    if selector.selects_all() {
        return Err("has a spec.selector that selects everything".to_owned());
    }
    Ok(selector)
}

/// The objects that concern one parent.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Claimed {
    /// The children of the parent.
    pub(super) own: Vec<Live>,
    /// The objects that the parent may adopt.
    pub(super) adoptable: Vec<Live>,
    /// The objects that the parent controls and no longer selects.
    pub(super) released: Vec<Live>,
}

/// Sorts the objects of the watches.
pub(super) fn claim(
    family: &Family,
    parent: &DynamicObject,
    selector: &Selector,
    live: &[Live],
) -> Claimed {
    let mut claimed = Claimed::default();
    let uid = parent.metadata.uid.as_deref().unwrap_or_default();
    let none = BTreeMap::new();
    for child in live {
        let metadata = &child.object.metadata;
        let selected = selector.matches(metadata.labels.as_ref().unwrap_or(&none));
        let here = family.parent.cluster_scoped || metadata.namespace == parent.metadata.namespace;
        match labels::controller(metadata) {
            Some(controller) if controller.uid == uid && selected => {
                claimed.own.push(child.clone())
            }
            Some(controller) if controller.uid == uid => claimed.released.push(child.clone()),
            None if selected && here && metadata.deletion_timestamp.is_none() => {
                claimed.adoptable.push(child.clone());
            }
            _ => {}
        }
    }
    claimed
}

/// Returns the owner reference with which a parent controls its children.
pub(super) fn controller_reference(family: &Family, parent: &DynamicObject) -> OwnerReference {
    let resource = &family.parent.resource;
    OwnerReference {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        name: parent.metadata.name.clone().unwrap_or_default(),
        uid: parent.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
