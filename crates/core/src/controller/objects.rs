//! The objects of plans: desired and existing ones.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use oz_api::{IdentityError, Name, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A desired object. A builder creates it from a typed object; see [`Child::new`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Child {
    /// Resource to which it is written.
    pub resource: ApiResource,
    /// Written fields: `metadata.name`, `metadata.namespace` and the fields that oz owns.
    pub object: DynamicObject,
}

impl Child {
    /// Creates a child with the content of a typed object. The object's labels must carry
    /// [`oz_api::labels::OWNER_UID`] and [`oz_api::labels::OWNER_KIND`], by which the engine finds it again;
    /// [`oz_api::labels::mark`] sets them.
    pub fn new<K>(object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        // A Kubernetes object always serialises to a JSON object; an empty one fails at the API
        // server with a clear message, should that ever be untrue.
        let mut data = serde_json::to_value(object).unwrap_or_default();
        if let Some(fields) = data.as_object_mut() {
            fields.remove("metadata");
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let types = TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        };
        let object = DynamicObject {
            types: Some(types),
            metadata: object.meta().clone(),
            data,
        };
        Self { resource, object }
    }

    /// Returns kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.resource, &self.object.metadata)
    }
}

/// A child that exists in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Live {
    /// Resource from which it was read.
    pub resource: ApiResource,
    /// Object as it was read.
    pub object: DynamicObject,
}

impl Live {
    /// Returns kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.resource, &self.object.metadata)
    }

    /// Returns a reference to this object, with its UID.
    #[must_use]
    pub fn reference(&self) -> Reference {
        Reference {
            resource: self.resource.clone(),
            namespace: self.object.metadata.namespace.clone(),
            name: self.object.metadata.name.clone(),
            uid: self.object.metadata.uid.clone(),
        }
    }

    /// Checks whether both are the same stored object, perhaps read at different times.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.object.metadata.uid.is_some() && self.reference() == other.reference()
    }

    /// Parses the object as its own type; `None` if it is of another kind or does not decode.
    #[must_use]
    pub fn parse<K>(&self) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Metadata<Ty = ObjectMeta> + DeserializeOwned,
    {
        if self.resource.kind != K::kind(&()) || self.resource.group != K::group(&()) {
            return None;
        }
        // Its content and its metadata are separate, and neither is copied twice.
        let mut object = K::deserialize(&self.object.data).ok()?;
        *object.metadata_mut() = self.object.metadata.clone();
        Some(object)
    }
}

/// Kind, namespace and name, which are unique at one time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as `RoleBinding`.
    pub kind: String,
    /// Namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name; `None` for an object that the API server has not named yet.
    pub name: Option<String>,
}

impl Key {
    /// Returns the key of the object that has this metadata.
    #[must_use]
    pub fn new(resource: &ApiResource, metadata: &ObjectMeta) -> Self {
        Self {
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }

    /// Returns the name.
    ///
    /// # Errors
    /// If the object has none.
    pub fn name(&self) -> Result<Name<'_>, IdentityError> {
        let name = self.name.as_deref().map(Name::new);
        name.ok_or(IdentityError::Nameless)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(formatter, "{namespace}/")?;
        }
        self.name
            .iter()
            .try_for_each(|name| formatter.write_str(name))
    }
}

/// A reference to one object, and to no other object of its name: the only object that a deletion may affect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Resource of the object.
    pub resource: ApiResource,
    /// Namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name; `None` for an object that is not stored.
    pub name: Option<String>,
    /// UID, the precondition of a deletion; `None` for an object that is not stored.
    pub uid: Option<String>,
}

impl Reference {
    /// Returns kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Returns name and UID.
    ///
    /// # Errors
    /// If the object is not stored.
    pub fn identified(&self) -> Result<(Name<'_>, Uid<'_>), IdentityError> {
        let name = self.name.as_deref().map(Name::new);
        let name = name.ok_or(IdentityError::Nameless)?;
        let uid = self.uid.as_deref().map(Uid::new);
        let uid = uid.ok_or_else(|| IdentityError::Missing {
            name: name.to_string(),
            field: "metadata.uid",
        })?;
        Ok((name, uid))
    }
}
