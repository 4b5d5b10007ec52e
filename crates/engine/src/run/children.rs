//! The children of one controller's objects: one store per kind, read by owner.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, Expression, Selector, SelectorExt};
use oz_core::controller::{Controller, Failure, Live, Sought};
use oz_runtime::{Kind, Store, SubscriberId, Subscription, mark};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::applied::Applied;
use super::packed::{Packed, mark_of};
use crate::observe::Belonging;

/// All kinds of children, in the order in which a plan creates them.
pub(crate) struct Children {
    pub(crate) kinds: Vec<ChildStore>,
    pub(crate) beside: Vec<Beside>,
    pub(crate) belonging: Belonging,
}

/// The objects of one kind except the controller's own children.
pub(crate) struct Beside {
    pub(crate) resource: ApiResource,
    pub(crate) stores: Vec<Store<Packed>>,
}

/// The children of one kind.
pub(crate) struct ChildStore {
    pub(crate) kind: Kind,
    /// The grace period of a deletion in seconds, if it is not the one that the child requests.
    pub(crate) grace_seconds: Option<u32>,
    pub(crate) store: Store<Packed>,
    /// The subscription of the component that applies the engine's own writes, and so receives no
    /// calls for them.
    pub(crate) subscription: Subscription,
    /// True if the engine's own writes cause a pass: the children that a function receives are part of
    /// its input.
    pub(crate) tells_itself: bool,
    pub(crate) applied: Applied,
}

impl Children {
    /// Returns the children of one object, the oldest first, and the objects that it may adopt.
    pub(crate) fn list_for_owner(&self, owner: &str, adopts: Option<&Adopts>) -> Vec<Live> {
        let mut found: Vec<(usize, Live)> = Vec::new();
        for (order, child) in self.kinds.iter().enumerate() {
            let resource = &child.kind.resource;
            let mut add = |object: &Packed| {
                if let Some(object) = object.unpack() {
                    let resource = resource.clone();
                    found.push((order, Live { resource, object }));
                }
            };
            let objects = child.store.group(owner);
            objects.iter().for_each(|object| add(object));
            if let Some(adopts) = adopts {
                let orphans = child.store.group(Packed::ORPHAN);
                let orphans = orphans.iter().filter(|orphan| adopts.takes(orphan));
                orphans.for_each(|orphan| add(orphan));
            }
        }
        found.sort_by(|(order, live), (other_order, other)| {
            let (metadata, other) = (&live.object.metadata, &other.object.metadata);
            (&metadata.creation_timestamp, order, &metadata.name).cmp(&(
                &other.creation_timestamp,
                other_order,
                &other.name,
            ))
        });
        found.into_iter().map(|(_, live)| live).collect()
    }

    /// Returns the children with this value in this field, regardless of their owner.
    pub(crate) fn having(
        &self,
        sought: &Sought,
        field: &str,
        value: &Value,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let store = &self.kind(&sought.resource)?.store;
        Ok(having(store, sought, field, value))
    }

    /// Returns the other objects of the kind with this value; `None` if no watch has shown them, or not this
    /// field of each existing object.
    pub(crate) fn having_beside(
        &self,
        sought: &Sought,
        field: &str,
        value: &Value,
    ) -> Option<Vec<DynamicObject>> {
        let mut kinds = self.beside.iter();
        let beside = kinds.find(|beside| beside.resource == sought.resource)?;
        let is_here = |child: &Packed| is_sought_here(child, sought);
        let mut found = Vec::new();
        for store in &beside.stores {
            if !store.is_ready() || !store.unmarked(mark(field), is_here).is_empty() {
                return None;
            }
            found.extend(having(store, sought, field, value));
        }
        Some(found)
    }

    /// Returns the UIDs of all objects that have children.
    pub(crate) fn owners(&self) -> std::collections::BTreeSet<String> {
        self.kinds
            .iter()
            .flat_map(|child| child.store.groups())
            .filter(|owner| owner != Packed::ORPHAN)
            .collect()
    }

    /// Returns the store of one kind.
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

fn having(
    store: &Store<Packed>,
    sought: &Sought,
    field: &str,
    value: &Value,
) -> Vec<DynamicObject> {
    let found = store.marked(mark_of(field, value), |child| is_sought_here(child, sought));
    found.iter().filter_map(|child| child.unpack()).collect()
}

fn is_sought_here(child: &Packed, sought: &Sought) -> bool {
    child.meta().namespace == sought.namespace
}

/// The objects without a controller that one object may adopt.
pub(crate) struct Adopts {
    /// The namespace; `None` if they may be in any.
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
}

impl Adopts {
    /// Returns the selection of objects without an owner that an object may adopt.
    pub(crate) fn from_object<C: Controller>(controller: &C, object: &C::Object) -> Option<Self> {
        let selector = controller.selects(object)?;
        // A selector that selects everything selects nothing: it would take over a namespace.
        (!selector.selects_all()).then(|| Self {
            namespace: object.meta().namespace.clone(),
            selector,
        })
    }

    pub(crate) fn takes(&self, orphan: &Packed) -> bool {
        let here = self.namespace.is_none() || orphan.meta().namespace == self.namespace;
        // The text rules out most objects.
        let may_match = || {
            let mut expressions = self.selector.clone().into_iter();
            expressions.all(|expression| match &expression {
                Expression::Equal(name, value) => orphan.may_have_label(name, value),
                _ => true,
            })
        };
        let matches = |object: DynamicObject| {
            let labels = object.metadata.labels.unwrap_or_default();
            self.selector.matches(&labels)
        };
        here && may_match() && orphan.unpack().is_some_and(matches)
    }
}

/// The objects that were deleted while this process watched, as they were last seen, until it is
/// certain that no children remain: the children may be hidden, and only the object contains their
/// names.
pub(crate) struct Departed<K>(Arc<Mutex<HashMap<String, Arc<K>>>>);

impl<K> Clone for Departed<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Departed<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Resource> Departed<K> {
    pub(crate) fn note(&self, object: &Arc<K>) {
        if let Some(uid) = object.meta().uid.clone() {
            self.all().insert(uid, Arc::clone(object));
        }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<K>> {
        self.all().get(uid).cloned()
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.all().remove(uid);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<K>>> {
        self.0.lock()
    }
}

impl ChildStore {
    pub(crate) fn wrote(&self, object: DynamicObject) {
        self.store.wrote(Packed::new(object), self.by());
    }

    pub(crate) fn gone(&self, uid: &str) {
        self.store.gone(uid, self.by());
        self.applied.forget(uid);
    }

    /// Returns the subscriber that receives no call for a write of the engine.
    fn by(&self) -> Option<SubscriberId> {
        (!self.tells_itself).then(|| self.subscription.id())
    }
}
