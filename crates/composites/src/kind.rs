//! Kinds: in their declared form, and as the API server describes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Resource;
use kube::core::ApiResource;
use oz_api::composite::{Method, ParentResource};
use serde::{Deserialize, Serialize};

/// A kind in its declared form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KindName {
    /// The group and version.
    pub api_version: String,
    /// The plural name.
    pub resource: String,
}

impl KindName {
    /// Returns the kind of a type.
    #[must_use]
    pub fn from_type<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            resource: K::plural(&()).into_owned(),
        }
    }

    /// Returns the kind, with the singular name `kind`, for a client.
    #[must_use]
    pub fn api_resource(&self, kind: &str) -> ApiResource {
        ApiResource {
            group: self.group().to_owned(),
            version: self.version().to_owned(),
            api_version: self.api_version.clone(),
            kind: kind.to_owned(),
            plural: self.resource.clone(),
        }
    }

    /// Returns the API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        group(&self.api_version)
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &str {
        match self.api_version.split_once('/') {
            Some((_, version)) if !version.is_empty() => version,
            _ => &self.api_version,
        }
    }
}

impl From<&ParentResource> for KindName {
    fn from(parent: &ParentResource) -> Self {
        Self {
            api_version: parent.api_version.clone(),
            resource: parent.resource.clone(),
        }
    }
}

impl std::fmt::Display for KindName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group() {
            "" => formatter.write_str(&self.resource),
            group => write!(formatter, "{}.{group}", self.resource),
        }
    }
}

/// Returns the group of an API version; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Checks whether the group, version and plural name have a valid form.
pub(super) fn is_kind(kind: &KindName) -> bool {
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = |byte| plain(byte) || matches!(byte, b'-' | b'.');
        !text.is_empty() && text.bytes().all(is_name)
    };
    let mut parts = kind.api_version.split('/').chain([kind.resource.as_str()]);
    parts.all(is_name) && kind.api_version.split('/').count() <= 2
}

/// A kind as the API server describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The group, version, kind and plural name.
    pub resource: ApiResource,
    /// True if objects of the kind are cluster-scoped.
    pub cluster_scoped: bool,
}

impl Placed {
    /// Returns the kind with this plural name, and whether it has a status subresource; `None` if it is not listed.
    #[must_use]
    pub fn listed(name: &KindName, listed: &APIResourceList) -> Option<(Self, bool)> {
        let mut resources = listed.resources.iter();
        let found = resources.find(|resource| resource.name == name.resource)?;
        let status = format!("{}/status", name.resource);
        let mut resources = listed.resources.iter();
        let has_status = resources.any(|resource| resource.name == status);
        let placed = Self {
            resource: name.api_resource(&found.kind),
            cluster_scoped: !found.namespaced,
        };
        Some((placed, has_status))
    }
}

/// The kinds of a composite as the API server describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// The kind of parent.
    pub parent: Placed,
    /// The kinds of children, in the order in which they are declared.
    pub children: Vec<(Placed, Method)>,
}

impl Family {
    /// Returns the kind of child with this API version and kind, and its update method.
    #[must_use]
    pub fn child(&self, api_version: &str, kind: &str) -> Option<&(Placed, Method)> {
        let mut children = self.children.iter();
        children.find(|(placed, _)| {
            placed.resource.api_version == api_version && placed.resource.kind == kind
        })
    }
}
