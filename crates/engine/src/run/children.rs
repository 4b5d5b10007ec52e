//! The children of one controller's objects: one store per kind, read by owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use oz_core::controller::{Failure, Live, Sought};
use oz_runtime::{Kind, Store, Subscription};
use serde_json::Value;

use super::applied::Applied;
use super::packed::Packed;

/// All kinds of children, in the order in which a plan creates them.
pub(crate) struct Children {
    pub(crate) kinds: Vec<ChildStore>,
    /// What they are marked with, see [`oz_core::labels::OWNER_KIND`].
    pub(crate) mark: String,
}

/// The children of one kind.
pub(crate) struct ChildStore {
    pub(crate) kind: Kind,
    /// How many seconds a deletion gives it to end, if not as many as it asks for.
    pub(crate) grace_seconds: Option<u32>,
    pub(crate) store: Store<Packed>,
    /// Who takes in our own writes, and so is not told of them.
    pub(crate) subscription: Subscription,
    pub(crate) applied: Applied,
}

impl Children {
    /// The children of one object, the oldest first.
    pub(crate) fn of(&self, owner: &str) -> Vec<Live> {
        let mut found: Vec<(usize, Live)> = Vec::new();
        for (order, child) in self.kinds.iter().enumerate() {
            let resource = &child.kind.resource;
            let objects = child.store.group(owner);
            found.extend(objects.iter().filter_map(|object| {
                let object = object.unpack()?;
                let resource = resource.clone();
                Some((order, Live { resource, object }))
            }));
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

    /// What the watch shows of a kind that has this value in this field, whomever it was made for.
    pub(crate) fn having(
        &self,
        sought: &Sought,
        field: &str,
        value: &Value,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let found = self
            .kind(&sought.resource)?
            .store
            .select(|child| child.meta().namespace == sought.namespace && child.has(field, value));
        Ok(found.iter().filter_map(|child| child.unpack()).collect())
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

/// The objects that went while this process watched, as they were last seen, until it is certain that
/// nothing is left of them: what was made for them may be hidden, and only they can tell its name.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChildStore {
    pub(crate) fn wrote(&self, object: DynamicObject) {
        self.store
            .wrote(Packed::new(object), Some(self.subscription.id()));
    }

    pub(crate) fn gone(&self, uid: &str) {
        self.store.gone(uid, Some(self.subscription.id()));
        self.applied.forget(uid);
    }
}
