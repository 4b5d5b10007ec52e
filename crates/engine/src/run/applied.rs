//! The last desired state of each child, so that a value which the API server writes differently
//! than the engine does ("1000m" as "1") is not sent again and again.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kube::core::DynamicObject;
use parking_lot::{Mutex, MutexGuard};

/// The last desired states of the children of one kind, by UID. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    asked: Arc<Mutex<HashMap<String, AppliedState>>>,
}

#[derive(Debug, PartialEq, Eq)]
struct AppliedState {
    desired: u64,
    /// The child's generation after the API server had applied the state; its resource version if
    /// its kind has no generations.
    stand: Option<String>,
}

impl AppliedState {
    fn new(desired: &DynamicObject, live: &DynamicObject) -> Self {
        let mut hasher = DefaultHasher::new();
        desired.data.to_string().hash(&mut hasher);
        let metadata = &live.metadata;
        Self {
            desired: hasher.finish(),
            stand: match metadata.generation {
                Some(generation) => Some(generation.to_string()),
                None => metadata.resource_version.clone(),
            },
        }
    }
}

impl Applied {
    /// Records that `live` is the API server's response to `desired`.
    pub(crate) fn note(&self, desired: &DynamicObject, live: &DynamicObject) {
        if let Some(uid) = live.metadata.uid.clone() {
            self.asked().insert(uid, AppliedState::new(desired, live));
        }
    }

    /// Checks whether exactly this state was applied, and the child's content has not changed
    /// since.
    pub(crate) fn holds(&self, desired: &DynamicObject, live: &DynamicObject) -> bool {
        let Some(uid) = &live.metadata.uid else {
            return false;
        };
        self.asked().get(uid) == Some(&AppliedState::new(desired, live))
    }

    /// Removes the state of a deleted child.
    pub(crate) fn forget(&self, uid: &str) {
        self.asked().remove(uid);
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, AppliedState>> {
        self.asked.lock()
    }
}
