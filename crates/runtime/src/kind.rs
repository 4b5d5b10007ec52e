//! A kind as a value: how the API server calls it, and whether its objects are in namespaces.

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
    /// Whether its objects are outside of namespaces.
    pub cluster_scoped: bool,
}

impl Kind {
    /// The kind that a type stands for.
    #[must_use]
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        Self {
            resource: ApiResource::erase::<K>(&()),
            cluster_scoped: TypeId::of::<K::Scope>()
                == TypeId::of::<k8s_openapi::ClusterResourceScope>(),
        }
    }

    /// A kind that is named at run time, as the API server describes it.
    ///
    /// # Errors
    /// When it cannot be asked, or has no such kind.
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
