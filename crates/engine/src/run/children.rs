//! The children of one controller's objects: one store per kind, read by owner.

use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use oz_core::controller::{Failure, Live};
use oz_core::labels;

use crate::observe::ChildKind;
use crate::store::{Store, SubscriberId};

/// All kinds of children, in the order in which a plan creates them.
pub(crate) struct Children {
    pub(crate) kinds: Vec<ChildStore>,
}

/// The children of one kind.
pub(crate) struct ChildStore {
    pub(crate) kind: ChildKind,
    pub(crate) store: Store<DynamicObject>,
    /// Who takes in our own writes, and so is not told of them.
    pub(crate) subscriber: SubscriberId,
}

/// The UID of the object that a child was made for.
pub(crate) fn owner_uid(child: &DynamicObject) -> Option<&str> {
    let labels = child.metadata.labels.as_ref()?;
    labels.get(labels::OWNER_UID).map(String::as_str)
}

impl Children {
    /// The children of one object, the oldest first.
    pub(crate) fn of(&self, owner: &str) -> Vec<Live> {
        let mut found: Vec<_> = self
            .kinds
            .iter()
            .enumerate()
            .flat_map(|(order, child)| {
                let objects = child.store.group(owner);
                objects
                    .into_iter()
                    .map(move |object| (order, child, object))
            })
            .collect();
        found.sort_by(|(order, _, object), (other_order, _, other)| {
            let age = |object: &DynamicObject| object.creation_timestamp().map(|time| time.0);
            (age(object), order, &object.metadata.name).cmp(&(
                age(other),
                other_order,
                &other.metadata.name,
            ))
        });
        found
            .into_iter()
            .map(|(_, child, object)| Live {
                resource: child.kind.resource.clone(),
                object: DynamicObject::clone(&object),
            })
            .collect()
    }

    /// The UIDs of all objects that have children.
    pub(crate) fn owners(&self) -> std::collections::BTreeSet<String> {
        self.kinds
            .iter()
            .flat_map(|child| child.store.groups())
            .collect()
    }

    /// The store of one kind.
    pub(crate) fn kind(&self, resource: &ApiResource) -> Result<&ChildStore, Failure> {
        self.kinds
            .iter()
            .find(|child| {
                child.kind.resource.kind == resource.kind
                    && child.kind.resource.group == resource.group
            })
            .ok_or_else(|| {
                Failure::invalid(
                    "UnwatchedKind",
                    format!(
                        "{} is not among the kinds of children that this controller watches",
                        resource.kind
                    ),
                )
            })
    }
}

impl ChildStore {
    pub(crate) fn wrote(&self, object: DynamicObject) {
        self.store.wrote(object, Some(self.subscriber));
    }

    pub(crate) fn gone(&self, uid: &str) {
        self.store.gone(uid, Some(self.subscriber));
    }
}
