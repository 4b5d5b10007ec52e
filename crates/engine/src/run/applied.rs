//! What was last asked of each child, so that a value which the API server writes differently
//! than we do ("1000m" as "1") is not sent again and again.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kube::core::DynamicObject;
use parking_lot::{Mutex, MutexGuard};

/// What was asked of the children of one kind, by UID. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    asked: Arc<Mutex<HashMap<String, Asked>>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    desired: u64,
    /// The child's generation when the API server had taken it in; its resource version if its
    /// kind counts no generations.
    stand: String,
}

impl Asked {
    fn of(desired: &DynamicObject, live: &DynamicObject) -> Self {
        let mut hasher = DefaultHasher::new();
        desired.data.to_string().hash(&mut hasher);
        let metadata = &live.metadata;
        Self {
            desired: hasher.finish(),
            stand: match metadata.generation {
                Some(generation) => generation.to_string(),
                None => metadata.resource_version.clone().unwrap_or_default(),
            },
        }
    }
}

impl Applied {
    /// Remembers that `live` is the API server's answer to `desired`.
    pub(crate) fn note(&self, desired: &DynamicObject, live: &DynamicObject) {
        if let Some(uid) = live.metadata.uid.clone() {
            self.asked().insert(uid, Asked::of(desired, live));
        }
    }

    /// Whether exactly this was asked for, and nothing was changed in the child's content since.
    pub(crate) fn holds(&self, desired: &DynamicObject, live: &DynamicObject) -> bool {
        let uid = live.metadata.uid.as_deref().unwrap_or_default();
        self.asked().get(uid) == Some(&Asked::of(desired, live))
    }

    /// The child is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.asked().remove(uid);
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, Asked>> {
        self.asked.lock()
    }
}
