//! As what a store keeps the objects that it is fed.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How objects are kept, if not as they are.
pub struct Keep<K> {
    /// Makes the index that [`Store::group`](crate::Store::group) reads.
    pub group_of: Option<fn(&K) -> Option<&str>>,
    /// What is kept in place of an object that does not decode.
    pub stand_in: Option<fn(ObjectMeta) -> K>,
    /// Takes from an object what nobody asks the store for. Who shares a store has what the first one keeps.
    pub lean: Option<fn(K) -> K>,
    /// By what [`Store::marked`](crate::Store::marked) finds objects without opening those that are compact, each
    /// made by [`mark`].
    pub marks_of: Option<fn(&K) -> Vec<u64>>,
    /// Until when an object lasts, which [`Store::for_each`](crate::Store::for_each) tells without opening it.
    pub until_of: Option<fn(&K) -> Option<Timestamp>>,
    /// How objects become text and are read from it. With this, those that nobody asked for lately are kept as
    /// compressed text.
    pub compact: Option<AsText<K>>,
}

impl<K> Default for Keep<K> {
    fn default() -> Self {
        Self {
            group_of: None,
            stand_in: None,
            lean: None,
            marks_of: None,
            until_of: None,
            compact: None,
        }
    }
}

/// A mark: whatever is equal has the same, and hardly anything else.
#[must_use]
pub fn mark(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How an object becomes text, and is read from it.
pub struct AsText<K> {
    /// `None` if it has no text: then it is kept as it is.
    pub write: fn(&K) -> Option<Vec<u8>>,
    /// `None` if this is not the text of an object.
    pub read: fn(&[u8]) -> Option<K>,
}

impl<K> Clone for AsText<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for AsText<K> {}

impl<K: Serialize + DeserializeOwned> AsText<K> {
    /// As JSON.
    #[must_use]
    pub fn json() -> Self {
        Self {
            write: |object| serde_json::to_vec(object).ok(),
            read: |text| serde_json::from_slice(text).ok(),
        }
    }
}
