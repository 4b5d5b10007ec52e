//! The live objects of a grant, and what somebody else did to them. Labels and annotations of third
//! parties are not drift; a changed rule, subject or reference is, and so is a deletion.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::grant::{self, Grant};
use super::pod_state;
use super::request::Request;
use super::seal::Keys;
use super::stamp;
use crate::api::Phase;
use crate::build;
use crate::controller::{Child, Live};
use crate::encode;
use crate::labels;

/// The live objects of one request, typed.
pub(crate) struct Objects {
    pub(crate) role: Option<Role>,
    pub(crate) binding: Option<RoleBinding>,
    pub(crate) pod: Option<Pod>,
    pub(crate) network_policy: Option<NetworkPolicy>,
}

/// The objects of a request among those that are marked as its: in its namespace, under its name.
/// Marks are labels, which others can write too; what else bears them is none of our business.
pub(crate) fn ours(request: &Request<'_>, live: &[Live]) -> Vec<Live> {
    let name = grant::object_name(
        request.metadata.name.as_deref().unwrap_or_default(),
        request.uid(),
    );
    named(request.metadata.namespace.as_deref(), &name, live)
}

/// The objects of this namespace and name.
pub(crate) fn named(namespace: Option<&str>, name: &str, live: &[Live]) -> Vec<Live> {
    live.iter()
        .filter(|live| {
            let key = live.key();
            key.namespace.as_deref() == namespace && key.name == name
        })
        .cloned()
        .collect()
}

/// Without the pods that were not made by oz for this request. Marks and name can be forged by
/// whoever may create pods; a pod is ours if it carries a decision that was sealed for the request,
/// or has the UID that the grant or the status names.
pub(crate) fn proven(
    keys: &Keys,
    request: &Request<'_>,
    grant: Option<&Grant>,
    live: &[Live],
) -> Vec<Live> {
    let told = request.status.and_then(|status| status.pod_uid.as_deref());
    live.iter()
        .filter(|live| is_proven(keys, request.uid(), grant, live) || told_of(live, told))
        .cloned()
        .collect()
}

/// Whether this is no pod, or one that was made for the request with this UID.
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
    pub(crate) fn of(request: &Request<'_>, live: &[Live]) -> Self {
        let live = ours(request, live);
        Self {
            role: live.iter().find_map(Live::parse),
            binding: live.iter().find_map(Live::parse),
            pod: live.iter().find_map(Live::parse),
            network_policy: live.iter().find_map(Live::parse),
        }
    }

    /// What is wrong when no Role carries a decision of ours; `None` if none is to be expected.
    pub(crate) fn without_decision(&self, request: &Request<'_>) -> Option<String> {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        if self.role.is_some() {
            return Some(format!(
                "the sealed decision on the Role of {name} was changed"
            ));
        }
        (self.binding.is_some() || request.phase() == Phase::Active)
            .then(|| format!("the Role of {name} was deleted"))
    }

    /// What differs from what the grant says; only in fields that are ours, since others may label
    /// and annotate.
    pub(crate) fn drift(&self, request: &Request<'_>, grant: &Grant) -> Option<String> {
        let name = grant.object_name();
        let request_name = &grant.request.name;
        if grant.stamp.is_some() && grant.stamp != stamp::digest(request.metadata) {
            return Some(format!("the stamp of {request_name} was changed"));
        }
        let differs = |role: &Role| match &grant.rules {
            Some(digest) => encode::digest(&role.rules) != *digest,
            None => role.rules.as_deref() != Some(&build::rules(grant)),
        };
        if self.role.as_ref().is_some_and(differs) {
            return Some(format!("the rules of Role {name} were changed"));
        }
        let metadata = [
            self.role.as_ref().map(|role| &role.metadata),
            self.binding.as_ref().map(|binding| &binding.metadata),
        ];
        if metadata.into_iter().flatten().any(is_held) {
            // It would outlive its deletion, and a binding that is being deleted still gives access.
            return Some(format!("a finalizer was put on what is named {name}"));
        }
        let wanted = build::bare_role_binding(grant);
        match &self.binding {
            Some(binding) if !is_owned(binding, request) => Some(format!(
                "the owner reference of RoleBinding {name} was removed"
            )),
            Some(binding) if binding.role_ref != wanted.role_ref => {
                Some(format!("the roleRef of RoleBinding {name} was changed"))
            }
            Some(binding) if !same_subjects(binding, &wanted) => {
                Some(format!("the subjects of RoleBinding {name} were changed"))
            }
            None if request.phase() == Phase::Active => {
                Some(format!("RoleBinding {name} was deleted"))
            }
            _ => None,
        }
    }
}

/// Whether an object gives access: a binding, under whatever name, or a pod that was made for
/// somebody.
pub(crate) fn gives_access(live: &Live) -> bool {
    matches!(
        live.resource.kind.as_str(),
        "RoleBinding" | "ClusterRoleBinding" | "Pod"
    )
}

/// Whether access goes on through this object: a binding that names anybody, deleted or not, or a
/// pod whose containers were not seen to have ended.
pub(crate) fn still_gives_access(live: &Live) -> bool {
    match live.resource.kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => has_entries(live, "subjects"),
        "Pod" => live
            .parse::<Pod>()
            .is_none_or(|pod| !pod_state::has_ended(&pod)),
        _ => false,
    }
}

/// What makes an object worthless that a finalizer keeps from going: a binding without subjects, a
/// Role without rules. Kubernetes honours both until they are gone. `None` if nothing is needed.
pub(crate) fn disarmed(live: &Live) -> Option<Child> {
    let metadata = &live.object.metadata;
    let stays = is_held(metadata) || metadata.deletion_timestamp.is_some();
    if stays { emptied(live) } else { None }
}

/// What makes an object worthless and leaves it where it is. `None` if it is worthless already.
pub(crate) fn emptied(live: &Live) -> Option<Child> {
    let metadata = &live.object.metadata;
    let field = match live.resource.kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => "subjects",
        "Role" => "rules",
        _ => return None,
    };
    if !has_entries(live, field) {
        return None;
    }
    let mut object = DynamicObject::new(metadata.name.as_deref()?, &live.resource);
    object.metadata.namespace.clone_from(&metadata.namespace);
    let marks = [labels::MANAGED_BY, labels::OWNER_KIND, labels::OWNER_UID];
    let known = metadata.labels.iter().flatten();
    object.metadata.labels = Some(
        known
            .filter(|(name, _)| marks.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    );
    object.data = json!({ field: [] });
    if let Some(role) = live.object.data.get("roleRef") {
        object.data["roleRef"] = role.clone();
    }
    Some(Child {
        resource: live.resource.clone(),
        object,
    })
}

fn has_entries(live: &Live, field: &str) -> bool {
    let entries = live.object.data.get(field).and_then(Value::as_array);
    entries.is_some_and(|entries| !entries.is_empty())
}

fn is_held(metadata: &ObjectMeta) -> bool {
    metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

fn is_owned(binding: &RoleBinding, request: &Request<'_>) -> bool {
    let mut owners = binding.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == request.uid())
}

/// Whether a deletion would change nothing: it is on its way out, at once.
pub(crate) fn is_leaving(live: &Live) -> bool {
    let metadata = &live.object.metadata;
    metadata.deletion_timestamp.is_some()
        && metadata
            .deletion_grace_period_seconds
            .is_none_or(|seconds| seconds <= pod_state::GRACE_SECONDS)
}

/// Subjects are compared as RBAC reads them: an absent API group is the kind's own.
fn same_subjects(one: &RoleBinding, other: &RoleBinding) -> bool {
    let plain = |binding: &RoleBinding| {
        let mut subjects = binding.subjects.clone().unwrap_or_default();
        for subject in &mut subjects {
            subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
        }
        subjects
    };
    plain(one) == plain(other)
}
