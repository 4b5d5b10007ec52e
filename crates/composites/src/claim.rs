//! The children of a parent: the objects that it controls and selects, that it may adopt, and that it must release.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{DynamicObject, Selector, SelectorExt};
use oz_api::{IdentityError, Name, Uid, labels};
use oz_core::controller::Live;

use super::answer::SelectorError;
use super::declared::{Declared, Family};

/// A parent, with the identity by which its children name it.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) object: &'a DynamicObject,
    pub(super) name: Name<'a>,
    pub(super) uid: Uid<'a>,
}

impl<'a> Owner<'a> {
    pub(super) fn new(object: &'a DynamicObject) -> Result<Self, IdentityError> {
        Ok(Self {
            object,
            name: Name::from_metadata(&object.metadata)?,
            uid: Uid::from_metadata(&object.metadata)?,
        })
    }
}

/// Returns the label selector for the children of a parent.
///
/// # Errors
/// If the parent has no selector. The error states the reason.
pub(super) fn selector(declared: &Declared, parent: &Owner<'_>) -> Result<Selector, SelectorError> {
    if declared.generate_selector {
        let label = (labels::CONTROLLER_UID.to_owned(), parent.uid.to_string());
        return Ok(Selector::from_iter([label]));
    }
    let spec = parent.object.data.pointer("/spec/selector");
    let spec = spec.ok_or(SelectorError::Missing)?;
    let selector: LabelSelector =
        serde_json::from_value(spec.clone()).map_err(SelectorError::Form)?;
    let selector = Selector::try_from(selector).map_err(SelectorError::Expression)?;
    if selector.selects_all() {
        return Err(SelectorError::Everything);
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
    parent: &Owner<'_>,
    selector: &Selector,
    live: &[Live],
) -> Claimed {
    let mut claimed = Claimed::default();
    let uid = parent.uid;
    let none = BTreeMap::new();
    for child in live {
        let metadata = &child.object.metadata;
        let selected = selector.matches(metadata.labels.as_ref().unwrap_or(&none));
        let here =
            family.parent.cluster_scoped || metadata.namespace == parent.object.metadata.namespace;
        match labels::controller(metadata) {
            Some(controller) if uid == *controller.uid && selected => {
                claimed.own.push(child.clone())
            }
            Some(controller) if uid == *controller.uid => claimed.released.push(child.clone()),
            None if selected && here && metadata.deletion_timestamp.is_none() => {
                claimed.adoptable.push(child.clone());
            }
            _ => {}
        }
    }
    claimed
}

/// Returns the owner reference with which a parent controls its children.
pub(super) fn controller_reference(family: &Family, parent: &Owner<'_>) -> OwnerReference {
    let resource = &family.parent.resource;
    OwnerReference {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        name: parent.name.to_string(),
        uid: parent.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
