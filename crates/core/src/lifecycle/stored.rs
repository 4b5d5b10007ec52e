//! The views of stored objects.

use std::ops::Deref;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Identity, IdentityError};

/// The view of a stored object, with the object's identity. The view alone may be of an object at admission, which has
/// no identity yet.
#[derive(Clone, Debug)]
pub struct Stored<'a, V> {
    identity: Identity<'a>,
    view: V,
}

impl<'a, V> Stored<'a, V> {
    /// Adds its identity to the view of an object with this metadata.
    ///
    /// # Errors
    /// If the object is not stored.
    pub fn new(metadata: &'a ObjectMeta, view: V) -> Result<Self, IdentityError> {
        let identity = Identity::try_from(metadata)?;
        Ok(Self { identity, view })
    }

    /// Returns the identity.
    #[must_use]
    pub const fn identity(&self) -> Identity<'a> {
        self.identity
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.identity.name.as_str()
    }

    /// Returns the UID.
    #[must_use]
    pub const fn uid(&self) -> &'a str {
        self.identity.uid.as_str()
    }

    /// Returns the time of creation by the API server's clock.
    #[must_use]
    pub const fn created(&self) -> Timestamp {
        self.identity.created
    }
}

impl<V> Deref for Stored<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.view
    }
}
