//! As what a store keeps the objects that it is fed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How objects are kept, if not as they are.
pub struct Keep<K> {
    /// Makes the index that [`Store::group`](crate::Store::group) reads.
    pub group_of: Option<fn(&K) -> Option<&str>>,
    /// What is kept in place of an object that does not decode.
    pub stand_in: Option<fn(ObjectMeta) -> K>,
    /// Takes from an object what nobody asks the store for. Who shares a store has what the first one keeps.
    pub lean: Option<fn(K) -> K>,
}

impl<K> Default for Keep<K> {
    fn default() -> Self {
        Self {
            group_of: None,
            stand_in: None,
            lean: None,
        }
    }
}
