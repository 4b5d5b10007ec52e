//! Runs and workspaces that the API server stores.

use std::ops::Deref;

use kube::Resource;
use oz_api::harness::GROUP;
use oz_api::{Identity, IdentityError, Namespace};
use oz_core::confine::Owner;
use oz_trail::RequestRef;

/// An object of a namespace, with the identity under which the API server stores it. A pass creates it once, where it
/// receives the object.
#[derive(Clone, Copy, Debug)]
pub struct StoredObject<'a, K> {
    object: &'a K,
    /// The identity of the object.
    pub identity: Identity<'a>,
    /// The namespace of the object.
    pub namespace: Namespace<'a>,
}

impl<'a, K: Resource> StoredObject<'a, K> {
    /// Identifies an object.
    ///
    /// # Errors
    /// If the object lacks a namespace, a name, a UID or a time of creation.
    pub fn new(object: &'a K) -> Result<Self, IdentityError> {
        let identity = Identity::try_from(object.meta())?;
        Ok(Self {
            object,
            identity,
            namespace: identity.namespace()?,
        })
    }

    /// Returns the object.
    #[must_use]
    pub const fn object(&self) -> &'a K {
        self.object
    }

    pub(crate) const fn name(&self) -> &'a str {
        self.identity.name.as_str()
    }

    pub(crate) const fn uid(&self) -> &'a str {
        self.identity.uid.as_str()
    }

    /// Returns the object of this kind as the owner of others.
    pub(crate) fn owner(&self, kind: &'a str) -> Owner<'a> {
        Owner {
            group: GROUP,
            kind,
            namespace: self.namespace.as_str(),
            name: self.name(),
            uid: self.uid(),
        }
    }

    /// Returns the object, for records.
    pub(crate) fn reference(&self, kind: &str) -> RequestRef {
        RequestRef::stored(kind, self.identity)
    }
}

impl<K> Deref for StoredObject<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.object
    }
}
