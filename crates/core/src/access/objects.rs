//! The live objects of a grant, and changes of them by others. Labels and annotations of third parties are not drift; a
//! changed rule, subject or reference is drift, and so is a deletion.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{encode, labels, names};
use serde_json::{Value, json};

use super::grant::Grant;
use super::request::StoredRequest;
use super::stamp;
use crate::build;
use crate::controller::Live;
use crate::lifecycle::drift::{self, Drift};
use crate::lifecycle::seal::{self, Keys};

/// The live objects of one request, typed.
pub(crate) struct Objects {
    pub(crate) role: Option<Role>,
    pub(crate) binding: Option<RoleBinding>,
    pub(crate) pod: Option<Pod>,
    pub(crate) network_policy: Option<NetworkPolicy>,
}

/// Returns the objects of a request among the objects that bear its marks: those in its namespace, under its name, and
/// Roles under a reserved name. Marks are labels, which other users can write too; oz does not touch other objects that
/// bear them.
pub(crate) fn ours(request: &StoredRequest<'_>, live: &[Live]) -> Vec<Live> {
    let name = request.object_name();
    filter_by_name(request.metadata.namespace.as_deref(), &name, live)
}

/// Returns the objects of this namespace and name, and the Roles of reserved names in it.
pub(crate) fn filter_by_name(namespace: Option<&str>, name: &str, live: &[Live]) -> Vec<Live> {
    let named = live.iter().filter(|live| is_named(namespace, name, live));
    named.cloned().collect()
}

fn is_named(namespace: Option<&str>, name: &str, live: &Live) -> bool {
    live.object.metadata.namespace.as_deref() == namespace
        && (name_of(live) == Some(name) || is_reserved(live))
}

fn name_of(live: &Live) -> Option<&str> {
    live.object.metadata.name.as_deref()
}

/// Checks whether the object is a Role of a reserved name.
fn is_reserved(live: &Live) -> bool {
    live.resource.kind == "Role" && name_of(live).is_some_and(names::is_grant_role)
}

/// Returns the decision that a Role carries, if it was made for this Role.
pub(crate) fn decision(keys: &Keys, request: &StoredRequest<'_>, role: &Role) -> Option<Grant> {
    let metadata = &role.metadata;
    let grant = Grant::open(keys, metadata, request.uid())?;
    (metadata.name.as_deref() == Some(&grant.role_name())).then_some(grant)
}

/// Checks whether the Role or the RoleBinding of a request carries a decision that an earlier release sealed.
pub(crate) fn is_retired(request: &StoredRequest<'_>, live: &[Live]) -> bool {
    ours(request, live).iter().any(|live| {
        matches!(live.resource.kind.as_str(), "Role" | "RoleBinding")
            && seal::is_retired_on(&live.object.metadata, labels::GRANT)
    })
}

/// Removes the objects that bear no mark and that oz did not make for this request either. A user can remove a mark;
/// the seal, an owner reference, the Role of a binding and the rules of a Role still identify an object. A request that
/// was never granted has no object of oz that its content alone could identify.
pub(crate) fn filter_own<'a>(
    keys: &Keys,
    request: &StoredRequest<'_>,
    live: &'a [Live],
) -> Cow<'a, [Live]> {
    let marks = request.marks();
    let is_known = |live: &Live| {
        marks.are_on(&live.object.metadata)
            || Grant::open(keys, &live.object.metadata, request.uid()).is_some()
            || is_told(request, live)
    };
    if live.iter().all(is_known) {
        return Cow::Borrowed(live);
    }
    live.iter().filter(|live| is_known(live)).cloned().collect()
}

/// Checks whether the content of an object, without marks and seal, identifies it.
fn is_told(request: &StoredRequest<'_>, live: &Live) -> bool {
    let status = request.status.filter(|status| status.granted_at.is_some());
    let Some(status) = status else {
        return false;
    };
    match live.resource.kind.as_str() {
        "RoleBinding" => binds(live, &request.role_name()),
        // Other users can use the name as soon as its Role is gone.
        "Role" if is_reserved(live) && bears_marks(&live.object.metadata) => false,
        "Role" => live.parse::<Role>().is_some_and(|role| {
            let rules = role.rules.into_iter().flatten();
            let mut pods = rules.flat_map(|rule| rule.resource_names.into_iter().flatten());
            pods.any(|name| Some(&name) == status.pod_name.as_ref())
        }),
        "Pod" => told_of(live, status.pod_uid.as_deref()),
        _ => false,
    }
}

/// Checks whether an object names its owner.
fn bears_marks(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    labels::owner_uid(metadata).is_some()
        || annotations.is_some_and(|annotations| annotations.contains_key(labels::GRANT))
}

/// Returns the bindings to the Role of this name that oz did not make for the request: as soon as the Role exists, they
/// grant its rights to other users.
pub(crate) fn strangers(
    keys: &Keys,
    request: &StoredRequest<'_>,
    role: &str,
    live: &[Live],
) -> Vec<String> {
    let mut names: Vec<String> = foreign(keys, request, live)
        .filter(|live| binds(live, role))
        .filter_map(|live| live.object.metadata.name.clone())
        .collect();
    names.sort();
    names
}

/// Returns the reserved names with numbers that have bindings of other authors.
pub(crate) fn bound_by_others(
    keys: &Keys,
    request: &StoredRequest<'_>,
    live: &[Live],
) -> Vec<String> {
    let role = |live: &Live| {
        Some(
            live.object
                .data
                .get("roleRef")?
                .get("name")?
                .as_str()?
                .to_owned(),
        )
    };
    foreign(keys, request, live)
        .filter_map(role)
        .filter(|role| names::grant_role_number(role).is_some())
        .collect()
}

/// Returns the RoleBindings that oz did not make for the request.
fn foreign<'a>(
    keys: &Keys,
    request: &StoredRequest<'_>,
    live: &'a [Live],
) -> impl Iterator<Item = &'a Live> {
    let (name, known) = (
        request.object_name(),
        filter_own(keys, request, live).into_owned(),
    );
    live.iter().filter(move |live| {
        let mut ours = known.iter();
        live.resource.kind == "RoleBinding"
            && !(name_of(live) == Some(&name) && ours.any(|one| one.is_same(live)))
    })
}

/// Checks whether the object is a binding to the Role of this name.
fn binds(live: &Live, role: &str) -> bool {
    live.resource.kind == "RoleBinding" && live.object.data.get("roleRef") == Some(&role_ref(role))
}

/// Returns a reference to a Role as the API server writes it.
pub(crate) fn role_ref(role: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role})
}

/// Removes the pods that oz did not make for this request. A user who may create pods can forge marks and name; a pod
/// is oz's if it carries a decision that was sealed for the request, or has the UID that the grant or the status names.
pub(crate) fn proven(
    keys: &Keys,
    request: &StoredRequest<'_>,
    grant: Option<&Grant>,
    live: &[Live],
) -> Vec<Live> {
    let told = request.status.and_then(|status| status.pod_uid.as_deref());
    live.iter()
        .filter(|live| is_proven(keys, request.uid(), grant, live) || told_of(live, told))
        .cloned()
        .collect()
}

/// Checks whether the object is not a pod, or is a pod that was made for the request with this UID.
pub(crate) fn is_proven(keys: &Keys, uid: &str, grant: Option<&Grant>, live: &Live) -> bool {
    live.resource.kind != "Pod"
        || Grant::open(keys, &live.object.metadata, uid).is_some()
        || told_of(live, grant.map(|grant| grant.pod.uid.as_str()))
}

fn told_of(live: &Live, uid: Option<&str>) -> bool {
    let uid = uid.filter(|uid| !uid.is_empty());
    uid.is_some() && live.object.metadata.uid.as_deref() == uid
}

impl Objects {
    pub(crate) fn from_live(request: &StoredRequest<'_>, live: &[Live]) -> Self {
        let (namespace, name) = (request.metadata.namespace.as_deref(), request.object_name());
        let live = live.iter().filter(|live| is_named(namespace, &name, live));
        let binding: Option<RoleBinding> = live.clone().find_map(Live::parse);
        // A user may have put the marks of the request on another Role as well.
        let bound = binding
            .as_ref()
            .map(|binding| binding.role_ref.name.as_str());
        let name = request.role_name();
        let roles = live.clone().filter_map(Live::parse::<Role>);
        let role = roles.min_by_key(|role| {
            let this = role.metadata.name.as_deref();
            (this != bound, this != Some(&name))
        });
        Self {
            role,
            binding,
            pod: live.clone().find_map(Live::parse),
            network_policy: live.clone().find_map(Live::parse),
        }
    }

    /// Returns the drift if no Role carries a decision of oz; `None` if the request requires no Role.
    pub(crate) fn without_decision(&self, request: &StoredRequest<'_>) -> Option<Drift> {
        let name = request.name();
        if self.role.is_some() {
            return Some(Drift::Decision(name.to_owned()));
        }
        (self.binding.is_some() || request.phase().is_granted())
            .then(|| Drift::RoleDeleted(name.to_owned()))
    }

    /// Returns the difference from the grant; only in fields that oz owns, since others may add labels and annotations.
    pub(crate) fn drift(&self, request: &StoredRequest<'_>, grant: &Grant) -> Option<Drift> {
        let (role_name, name) = (grant.role_name(), grant.object_name());
        let request_name = &grant.request.name;
        if grant.stamp.is_some() && grant.stamp != stamp::digest(request.metadata) {
            return Some(Drift::Stamp(request_name.clone()));
        }
        let differs = |role: &Role| match &grant.rules {
            Some(digest) => encode::digest(&role.rules) != *digest,
            None => role.rules.as_deref() != Some(&build::rules(grant)),
        };
        if self.role.as_ref().is_some_and(differs) {
            return Some(Drift::Rules(role_name));
        }
        let metadata = [
            self.role.as_ref().map(|role| &role.metadata),
            self.binding.as_ref().map(|binding| &binding.metadata),
        ];
        let marks = request.marks();
        let unmarked = |metadata: &&ObjectMeta| !marks.are_on(metadata);
        if metadata.iter().flatten().any(unmarked) {
            return Some(Drift::Labels(format!("the Role or RoleBinding {name}")));
        }
        if metadata.into_iter().flatten().any(drift::is_held) {
            // The object would outlive its deletion, and a binding that is being deleted still grants access.
            return Some(Drift::Finalizer(format!("the Role or RoleBinding {name}")));
        }
        let wanted = build::bare_role_binding(grant);
        let Some(binding) = &self.binding else {
            let deleted = request.phase().is_granted();
            return deleted.then(|| Drift::Deleted(format!("RoleBinding {name}")));
        };
        if !drift::is_owned(&binding.metadata, request.uid()) {
            return Some(Drift::Owner(format!("RoleBinding {name}")));
        }
        drift::of_binding(
            &format!("RoleBinding {name}"),
            (&binding.role_ref, binding.subjects.as_deref()),
            (&wanted.role_ref, wanted.subjects.as_deref().unwrap_or(&[])),
        )
    }
}
