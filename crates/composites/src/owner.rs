//! The owner of children: an object with its identity, and the rules of its controller for its children. Claiming,
//! evaluating and applying depend on an owner, and not on the declaration of its controller.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{DynamicObject, Selector};
use oz_api::{IdentityError, Name, Uid, labels};
use oz_core::controller::{Failure, Key};
use oz_core::lifecycle::drift;
use oz_core::lifecycle::seal::Keys;
use oz_core::transient::Policy;

use super::answer::SelectorError;
use super::kind::Family;
use super::window::{Bounds, Window};

/// The rule that selects the children of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The UID of the owner in a label, which oz writes on each child.
    Generated,
    /// The label selector in the owner.
    Stated {
        /// True if the owner adopts all selected objects, as in MetaController.
        adopts_all: bool,
    },
}

/// The rules of a controller for the children of its owners.
#[derive(Clone, Copy)]
pub(super) struct Ownership<'a> {
    /// The kind of the owners, and the kinds of children with the update method of each.
    pub(super) family: &'a Family,
    /// The selection of children.
    pub(super) selection: Selection,
    /// The finalizer on owners.
    pub(super) finalizer: &'a str,
    /// True if a function is called for an owner that is being deleted.
    pub(super) finalizes: bool,
    /// The window in which an owner has children; `None` for always.
    pub(super) window: Option<&'a Window>,
    /// The maximum number of children of one owner.
    pub(super) most_children: usize,
    /// The keys that seal expiries, and the authors of owners.
    pub(super) keys: &'a Keys,
    /// The roles with rights that children may grant; `None` if nothing is written, and this is not checked.
    pub(super) bindable: Option<&'a Policy>,
}

/// An object that has children, with the identity by which they name it.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) object: &'a DynamicObject,
    pub(super) name: Name<'a>,
    pub(super) uid: Uid<'a>,
    pub(super) rules: Ownership<'a>,
    /// True if the controller selects the object.
    is_selected: bool,
}

/// The fields of an owner that limit its children.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The label selector of the children.
    pub(super) selector: Selector,
    /// The window in which the owner has children.
    pub(super) bounds: Bounds,
}

impl<'a> Owner<'a> {
    pub(super) fn new(
        object: &'a DynamicObject,
        rules: Ownership<'a>,
        is_selected: bool,
    ) -> Result<Self, IdentityError> {
        Ok(Self {
            object,
            name: Name::from_metadata(&object.metadata)?,
            uid: Uid::from_metadata(&object.metadata)?,
            rules,
            is_selected,
        })
    }

    /// Checks whether the owner is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Checks whether the owner may have no children of oz any more: it is being deleted, or not selected.
    pub(super) fn is_finalizing(&self) -> bool {
        self.is_deleting() || !self.is_selected
    }

    /// Checks whether the owner has the finalizer of its controller.
    pub(super) fn is_held(&self) -> bool {
        drift::has_finalizer(&self.object.metadata, self.rules.finalizer)
    }

    /// Returns the kind, namespace and name of the owner.
    pub(super) fn key(&self) -> Key {
        Key::new(&self.rules.family.parent.resource, &self.object.metadata)
    }

    /// Returns the owner reference with which the owner controls its children.
    pub(super) fn reference(&self) -> OwnerReference {
        let resource = &self.rules.family.parent.resource;
        OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Returns the label selector of the children.
    ///
    /// # Errors
    /// If the owner has no selector. The error states the reason.
    pub(super) fn selector(&self) -> Result<Selector, SelectorError> {
        if self.rules.selection == Selection::Generated {
            let label = (labels::CONTROLLER_UID.to_owned(), self.uid.to_string());
            return Ok(Selector::from_iter([label]));
        }
        let spec = self.object.data.pointer("/spec/selector");
        let spec = spec.ok_or(SelectorError::Missing)?;
        let selector: LabelSelector =
            serde_json::from_value(spec.clone()).map_err(SelectorError::Form)?;
        let selector = Selector::try_from(selector).map_err(SelectorError::Expression)?;
        if selector.selects_all() {
            return Err(SelectorError::Everything);
        }
        Ok(selector)
    }

    /// Returns the fields of the owner that limit its children.
    ///
    /// # Errors
    /// If a field is missing or invalid.
    pub(super) fn terms(&self) -> Result<Terms, Failure> {
        let selector = self.selector();
        let selector = selector.map_err(|error| self.invalid("SelectorInvalid", &error))?;
        let bounds = self.rules.window.map(|window| window.bounds(self.object));
        let bounds = bounds
            .transpose()
            .map(Option::unwrap_or_default)
            .map_err(|error| self.invalid("WindowInvalid", &error))?;
        Ok(Terms { selector, bounds })
    }

    /// Creates a failure because of the owner. The message of `error` continues its title.
    pub(super) fn invalid(&self, reason: &'static str, error: &dyn Display) -> Failure {
        Failure::invalid(reason, format!("{} {error}", self.key()))
    }
}
