//! The objects that oz creates in addition to objects of its kinds, for the removal of oz and for checks of an
//! installation. Objects that the chart installs, such as Deployments, roles and admission policies, are not
//! among them, nor are the children of composites, since authors choose their kinds.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Resource;
use kube::core::ApiResource;
use oz_api::kind::Family;
use oz_api::names;

/// The step of the removal of oz that deletes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// After the webhook, which would restore the object, and again at the end.
    AfterWebhook,
    /// After the operator, which would restore the object, if the gate was in use.
    AfterGate,
    /// After the operator, once no access is left that the object vouches for.
    AfterAccess,
    /// None: the object outlives oz.
    Never,
}

/// An object with the same name in every installation.
#[derive(Clone, Debug)]
pub struct OwnObject {
    /// The kind of the object.
    pub resource: ApiResource,
    /// Whether it is in the namespace of oz; a cluster-scoped object is in none.
    pub namespaced: bool,
    /// The name of the object.
    pub name: &'static str,
    /// The step that deletes it.
    pub removal: Removal,
}

/// Returns the objects with the same name in every installation, in the order of their removal.
#[must_use]
pub fn own_objects() -> Vec<OwnObject> {
    use Removal::{AfterAccess, AfterGate, AfterWebhook, Never};
    [
        cluster_wide::<MutatingWebhookConfiguration>(names::REGISTRATION, AfterWebhook),
        cluster_wide::<ValidatingWebhookConfiguration>(names::REGISTRATION, AfterWebhook),
        cluster_wide::<APIService>(names::GATE_API_SERVICE, AfterGate),
        in_own_namespace::<Secret>(names::WEBHOOK_KEY, AfterAccess),
        in_own_namespace::<Secret>(names::WEBHOOK_PUBLIC_KEYS, AfterAccess),
        in_own_namespace::<Secret>(names::OPERATOR_KEY, AfterAccess),
        in_own_namespace::<Secret>(names::OPERATOR_PUBLIC_KEYS, AfterAccess),
        in_own_namespace::<Secret>(names::ADMISSION_AUTHORITY, AfterAccess),
        in_own_namespace::<Lease>(names::LEASE, AfterAccess),
        in_own_namespace::<Secret>(names::BROKER_KEY, Never),
        in_own_namespace::<Secret>(names::BROKER_PUBLIC_KEYS, Never),
        in_own_namespace::<Secret>(names::BROKER_AUTHORITY, Never),
        in_own_namespace::<ConfigMap>(names::BROKER_CA, Never),
        in_own_namespace::<Secret>(names::GATE_KEY, Never),
        in_own_namespace::<Secret>(names::GATE_PUBLIC_KEYS, Never),
        in_own_namespace::<Secret>(names::GATE_AUTHORITY, Never),
        in_own_namespace::<ConfigMap>(names::GATE_CA, Never),
        in_own_namespace::<Secret>(names::AUDIT_KEY, Never),
        in_own_namespace::<ConfigMap>(names::AUDIT_PUBLIC_KEYS, Never),
        in_own_namespace::<ConfigMap>(names::AUDIT_CHECKPOINTS, Never),
    ]
    .into()
}

fn cluster_wide<K>(name: &'static str, removal: Removal) -> OwnObject
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
{
    OwnObject {
        resource: ApiResource::erase::<K>(&()),
        namespaced: false,
        name,
        removal,
    }
}

fn in_own_namespace<K>(name: &'static str, removal: Removal) -> OwnObject
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    OwnObject {
        resource: ApiResource::erase::<K>(&()),
        namespaced: true,
        name,
        removal,
    }
}

/// The way in which children of a kind are removed with oz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRemoval {
    /// The objects are deleted.
    Plain,
    /// The objects are deleted after their pods; the next kinds of the family wait for that.
    AfterPods,
    /// The objects are not deleted.
    Never,
}

/// A kind of objects that oz creates for single objects of its kinds, with the labels of
/// [`mark`](oz_api::labels::mark).
#[derive(Clone, Debug)]
pub struct ChildKind {
    /// The kind of the children.
    pub resource: ApiResource,
    /// The family of the objects for which they are created; transient bindings include the published ones.
    pub family: Family,
    /// Whether the removal of oz waits for their end: access or a run lasts as long as they exist.
    pub is_awaited: bool,
    /// The removal of the objects if no operator removed them.
    pub removal: ChildRemoval,
}

/// Returns the kinds of children, in the order of their removal: those that give access first.
#[must_use]
pub fn child_kinds() -> Vec<ChildKind> {
    use ChildRemoval::{AfterPods, Never, Plain};
    use Family::{Access, Harness};
    [
        awaited(children::<rbac::ClusterRoleBinding>(Access, Plain)),
        awaited(children::<rbac::RoleBinding>(Access, Plain)),
        awaited(children::<Pod>(Access, Plain)),
        children::<NetworkPolicy>(Access, Plain),
        awaited(children::<rbac::Role>(Access, Plain)),
        children::<Job>(Harness, AfterPods),
        // They confine the pods of the Jobs.
        awaited(children::<NetworkPolicy>(Harness, Plain)),
        children::<PersistentVolumeClaim>(Harness, Never),
    ]
    .into()
}

fn children<K: Resource<DynamicType = ()>>(family: Family, removal: ChildRemoval) -> ChildKind {
    ChildKind {
        resource: ApiResource::erase::<K>(&()),
        family,
        is_awaited: false,
        removal,
    }
}

fn awaited(kind: ChildKind) -> ChildKind {
    ChildKind {
        is_awaited: true,
        ..kind
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn own_objects_are_named_once_each() {
        let all = own_objects();
        let different: BTreeSet<_> = all
            .iter()
            .map(|object| (&object.resource.kind, object.name))
            .collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn keys_of_every_component_are_own_objects() {
        let all = own_objects();
        for component in [names::OPERATOR].into_iter().chain(names::OTHER_WRITERS) {
            let (private, public) = names::key_secrets(component).unwrap();
            for name in [private, public] {
                assert!(all.iter().any(|object| object.name == name), "{name}");
            }
        }
    }
}
