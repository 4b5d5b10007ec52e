//! A kind in what the API server lists of its group and version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;

use super::declared::{KindName, Placed};

impl Placed {
    /// The kind of this plural, and whether it has a status subresource; `None` if it is not listed.
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
