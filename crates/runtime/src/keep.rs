//! The form in which a store keeps its objects.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The form in which a store keeps objects, if not unchanged.
pub struct Keep<K> {
    /// Makes the index that [`Store::group`](crate::Store::group) reads.
    pub group_of: Option<fn(&K) -> Option<&str>>,
    /// Creates the object to store for an object that does not decode.
    pub stand_in: Option<fn(ObjectMeta) -> K>,
    /// Removes the parts of an object that no reader of the store needs. A shared store uses the function of
    /// its first caller.
    pub lean: Option<fn(K) -> K>,
    /// Returns the marks by which [`Store::marked`](crate::Store::marked) finds objects without decoding compact
    /// ones, each created by [`mark`].
    pub marks_of: Option<fn(&K) -> Vec<u64>>,
    /// Returns the expiry of an object, which [`Store::for_each`](crate::Store::for_each) reports without
    /// decoding the object.
    pub until_of: Option<fn(&K) -> Option<Timestamp>>,
    /// Converts objects to text and back. With this, the store keeps objects without recent reads as
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

/// Returns the mark of a value: equal values have equal marks, and different values almost never
/// do.
#[must_use]
pub fn mark(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The conversion of an object to text and back.
pub struct AsText<K> {
    /// Returns `None` if the object has no text: then the store keeps it unchanged.
    pub write: fn(&K) -> Option<Vec<u8>>,
    /// Returns `None` if this is not the text of an object.
    pub read: fn(&[u8]) -> Option<K>,
}

impl<K> Clone for AsText<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for AsText<K> {}

impl<K: Serialize + DeserializeOwned> AsText<K> {
    /// Creates the conversion to JSON and back.
    #[must_use]
    pub fn json() -> Self {
        Self {
            write: |object| serde_json::to_vec(object).ok(),
            read: |text| serde_json::from_slice(text).ok(),
        }
    }
}
