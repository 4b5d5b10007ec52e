//! The kinds of a composite without a cluster: those of the objects in files, and those of Kubernetes.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use oz_composites::declared::{Declared, Family, KindName, Placed};

use super::Objects;
use crate::failure::{Failure, Result};

/// Kinds of Kubernetes: API version, kind, and whether they are cluster-scoped. Their plurals are the regular ones.
const KINDS: [(&str, &str, bool); 20] = [
    ("v1", "ConfigMap", false),
    ("v1", "Secret", false),
    ("v1", "Service", false),
    ("v1", "ServiceAccount", false),
    ("v1", "Pod", false),
    ("v1", "PersistentVolumeClaim", false),
    ("v1", "ResourceQuota", false),
    ("v1", "LimitRange", false),
    ("v1", "Namespace", true),
    ("apps/v1", "Deployment", false),
    ("apps/v1", "StatefulSet", false),
    ("apps/v1", "DaemonSet", false),
    ("batch/v1", "Job", false),
    ("batch/v1", "CronJob", false),
    ("networking.k8s.io/v1", "NetworkPolicy", false),
    ("networking.k8s.io/v1", "Ingress", false),
    ("rbac.authorization.k8s.io/v1", "Role", false),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", true),
];

/// Returns the kinds of a composite.
///
/// # Errors
/// No given object is of one of the kinds, and Kubernetes has no such kind.
pub(super) fn family(declared: &Declared, given: &Objects) -> Result<Family> {
    let parent = find(&declared.parent, &given.parents, "--parent")?;
    let mut children = Vec::new();
    for (name, method) in &declared.children {
        let kind = known(name).map_or_else(|| find(name, &given.children, "--children"), Ok)?;
        children.push((kind, *method));
    }
    Ok(Family { parent, children })
}

fn known(name: &KindName) -> Option<Placed> {
    let mut kinds = KINDS.iter();
    kinds.find_map(|(api_version, kind, cluster_scoped)| {
        let resource = regular(api_version, kind)?;
        let is_it = *api_version == name.api_version && resource.plural == name.resource;
        is_it.then_some(Placed {
            resource,
            cluster_scoped: *cluster_scoped,
        })
    })
}

/// Finds a kind among objects. If no object has the regular plural, the first of its API version is taken for it.
fn find(name: &KindName, objects: &[DynamicObject], flag: &str) -> Result<Placed> {
    let of_version = objects.iter().filter(|object| {
        let types = object.types.as_ref();
        types.is_some_and(|types| types.api_version == name.api_version)
    });
    let is_regular = |object: &&DynamicObject| {
        let types = object.types.as_ref();
        let resource = types.and_then(|types| regular(&types.api_version, &types.kind));
        resource.is_some_and(|resource| resource.plural == name.resource)
    };
    let found = of_version.clone().find(is_regular);
    let found = found.or_else(|| of_version.clone().next());
    let Some((object, types)) = found.and_then(|object| Some((object, object.types.as_ref()?)))
    else {
        return Err(Failure::new(format!(
            "the kind of {name} ({}) is not known without a cluster",
            name.api_version
        ))
        .next(format!("name a file with an object of it by {flag}")));
    };
    Ok(Placed {
        resource: name.api_resource(&types.kind),
        cluster_scoped: object.metadata.namespace.is_none(),
    })
}

fn regular(api_version: &str, kind: &str) -> Option<ApiResource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, kind);
    (!kind.kind.is_empty()).then(|| ApiResource::from_gvk(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_kubernetes_are_known_by_their_plurals() {
        let name = |api_version: &str, resource: &str| KindName {
            api_version: api_version.to_owned(),
            resource: resource.to_owned(),
        };
        for (api_version, plural, kind) in [
            ("v1", "configmaps", Some("ConfigMap")),
            (
                "networking.k8s.io/v1",
                "networkpolicies",
                Some("NetworkPolicy"),
            ),
            ("networking.k8s.io/v1", "ingresses", Some("Ingress")),
            ("v1", "deployments", None),
        ] {
            let found = known(&name(api_version, plural)).map(|placed| placed.resource.kind);
            assert_eq!(found.as_deref(), kind, "{plural}");
        }
    }
}
