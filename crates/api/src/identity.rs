//! The identity of an object that the API server stores.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The identity of a stored object. Code that receives an object creates it once, and passes it on: an object without a
/// name, a UID or a creation time is an error there, and never equals another object that lacks them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<Namespace<'a>>,
    /// The name.
    pub name: Name<'a>,
    /// The UID.
    pub uid: Uid<'a>,
    /// The time of creation by the API server's clock.
    pub created: Timestamp,
}

impl<'a> TryFrom<&'a ObjectMeta> for Identity<'a> {
    type Error = IdentityError;

    fn try_from(metadata: &'a ObjectMeta) -> Result<Self, IdentityError> {
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        Ok(Self {
            namespace: present(metadata.namespace.as_deref()).map(Namespace),
            name: Name::from_metadata(metadata)?,
            uid: Uid::from_metadata(metadata)?,
            created: created.ok_or_else(|| missing(metadata, "metadata.creationTimestamp"))?,
        })
    }
}

impl<'a> Identity<'a> {
    /// Returns the namespace of an object of a namespaced kind.
    ///
    /// # Errors
    /// If the object has none.
    pub fn namespace(&self) -> Result<Namespace<'a>, IdentityError> {
        self.namespace.ok_or_else(|| IdentityError::Missing {
            name: self.name.to_string(),
            field: "metadata.namespace",
        })
    }
}

/// The API server stores no such object: a field of its identity is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The object has no name.
    #[error("the object has no metadata.name; the API server stores no such object")]
    Nameless,
    /// The object has a name, and lacks another field.
    #[error("object {name} has no {field}; the API server stores no such object")]
    Missing {
        /// Name of the object.
        name: String,
        /// Path of the missing field.
        field: &'static str,
    },
}

/// Returns a text that is not empty: in Go an empty string equals a missing one.
fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

macro_rules! text_of_identity {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type<'a>(&'a str);

        impl<'a> $type<'a> {
            /// Wraps a text from another source than metadata, such as an owner reference.
            #[must_use]
            pub const fn new(text: &'a str) -> Self {
                Self(text)
            }

            /// Returns the text.
            #[must_use]
            pub const fn as_str(self) -> &'a str {
                self.0
            }
        }

        impl fmt::Display for $type<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.0)
            }
        }

        impl PartialEq<str> for $type<'_> {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $type<'_> {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }
    };
}

text_of_identity! {
    /// The name of a namespace.
    Namespace
}
text_of_identity! {
    /// The name of an object in its namespace.
    Name
}
text_of_identity! {
    /// The UID of an object.
    Uid
}

impl<'a> Name<'a> {
    /// Returns the name of an object that may not be stored yet, and so may lack a UID.
    ///
    /// # Errors
    /// If it has none.
    pub fn from_metadata(metadata: &'a ObjectMeta) -> Result<Self, IdentityError> {
        present(metadata.name.as_deref())
            .map(Self)
            .ok_or(IdentityError::Nameless)
    }
}

impl<'a> Namespace<'a> {
    /// Returns the namespace of an object of a namespaced kind that may not be stored yet.
    ///
    /// # Errors
    /// If it has none.
    pub fn from_metadata(metadata: &'a ObjectMeta) -> Result<Self, IdentityError> {
        let namespace = present(metadata.namespace.as_deref()).map(Self);
        namespace.ok_or_else(|| missing(metadata, "metadata.namespace"))
    }
}

impl<'a> Uid<'a> {
    /// Returns the UID of an object of which no more is needed than that.
    ///
    /// # Errors
    /// If it has none.
    pub fn from_metadata(metadata: &'a ObjectMeta) -> Result<Self, IdentityError> {
        let uid = present(metadata.uid.as_deref()).map(Self);
        uid.ok_or_else(|| missing(metadata, "metadata.uid"))
    }
}

fn missing(metadata: &ObjectMeta, field: &'static str) -> IdentityError {
    match Name::from_metadata(metadata) {
        Ok(name) => IdentityError::Missing {
            name: name.to_string(),
            field,
        },
        Err(nameless) => nameless,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn stored() -> ObjectMeta {
        ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("alice".to_owned()),
            uid: Some("1-2-3".to_owned()),
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn identity_of_stored_object_has_all_fields() {
        let metadata = stored();
        let identity = Identity::try_from(&metadata).unwrap();
        assert_eq!(identity.namespace, Some(Namespace::new("shop")));
        assert_eq!(identity.name, "alice");
        assert_eq!(identity.uid, "1-2-3");
        assert_eq!(identity.created, Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn identity_of_object_without_field_is_error_that_names_it() {
        type Change = fn(&mut ObjectMeta);
        let cases: [(Change, &str); 5] = [
            (|it| it.name = None, "metadata.name"),
            (|it| it.name = Some(String::new()), "metadata.name"),
            (|it| it.uid = None, "metadata.uid"),
            (|it| it.uid = Some(String::new()), "metadata.uid"),
            (
                |it| it.creation_timestamp = None,
                "metadata.creationTimestamp",
            ),
        ];
        for (change, field) in cases {
            let mut metadata = stored();
            change(&mut metadata);
            let error = Identity::try_from(&metadata).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn uid_of_object_without_one_is_error() {
        let metadata = stored();
        assert_eq!(Uid::from_metadata(&metadata).unwrap(), "1-2-3");
        let metadata = ObjectMeta {
            uid: Some(String::new()),
            ..metadata
        };
        let error = Uid::from_metadata(&metadata).unwrap_err().to_string();
        assert!(error.contains("metadata.uid"), "{error}");
    }

    #[test]
    fn namespace_of_cluster_scoped_object_is_error() {
        let metadata = ObjectMeta {
            namespace: None,
            ..stored()
        };
        let error = Identity::try_from(&metadata).unwrap().namespace();
        assert_eq!(
            error.unwrap_err().to_string(),
            "object alice has no metadata.namespace; the API server stores no such object"
        );
    }
}
