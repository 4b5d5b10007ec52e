//! A kind as a value: its names in the API, and the scope of its objects.

use std::any::TypeId;

use kube::core::discovery::Scope;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource, discovery};

use crate::call::{CallError, within};

/// A kind of object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// True if the objects of the kind are outside of namespaces.
    pub cluster_scoped: bool,
}

impl Kind {
    /// Returns the kind of a type.
    #[must_use]
    pub fn from_type<K>() -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        Self {
            resource: ApiResource::erase::<K>(&()),
            cluster_scoped: TypeId::of::<K::Scope>()
                == TypeId::of::<k8s_openapi::ClusterResourceScope>(),
        }
    }

    /// Looks up a kind that is named at run time, as the API server describes it.
    ///
    /// # Errors
    /// When the API server does not respond, or has no such kind.
    pub async fn discover(client: &Client, kind: &GroupVersionKind) -> Result<Self, CallError> {
        let what = || {
            let (version, kind) = (kind.api_version(), &kind.kind);
            format!("failed to look up the kind {kind} in {version}")
        };
        let (resource, capabilities) = within(discovery::pinned_kind(client, kind), what).await?;
        Ok(Self {
            resource,
            cluster_scoped: capabilities.scope == Scope::Cluster,
        })
    }
}
