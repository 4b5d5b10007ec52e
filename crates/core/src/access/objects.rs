//! The live objects of a grant, and what somebody else did to them. Labels and annotations of third
//! parties are not drift; a changed rule, subject or reference is, and so is a deletion.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::grant::Grant;
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
    let name = request.object_name();
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

/// For whom an object was made: what it is marked with, and the watch knows it by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a> {
    pub(crate) kind: &'a str,
    pub(crate) uid: &'a str,
}

impl Marks<'_> {
    /// Whether an object bears them, so that the watch shows it.
    pub(crate) fn are_on(self, metadata: &ObjectMeta) -> bool {
        self.labels().into_iter().all(|(name, value)| {
            let labels = metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get(name))
                .map(String::as_str)
                == Some(value)
        })
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        [
            (labels::MANAGED_BY, labels::OZ),
            (labels::OWNER_KIND, self.kind),
            (labels::OWNER_UID, self.uid),
        ]
    }
}

/// Without what bears no mark and was not made by oz for this request either. A mark can be taken off;
/// the seal, an owner reference, and what a binding binds and a Role hands out still tell. What never
/// was granted has nothing of oz's that could be told by its content alone.
pub(crate) fn known<'a>(keys: &Keys, request: &Request<'_>, live: &'a [Live]) -> Cow<'a, [Live]> {
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

/// Whether an object is told by what it says besides marks and seal.
fn is_told(request: &Request<'_>, live: &Live) -> bool {
    let status = request.status.filter(|status| status.granted_at.is_some());
    let Some(status) = status else {
        return false;
    };
    match live.resource.kind.as_str() {
        "RoleBinding" => binds(live, &request.object_name()),
        "Role" => live.parse::<Role>().is_some_and(|role| {
            let rules = role.rules.into_iter().flatten();
            let mut pods = rules.flat_map(|rule| rule.resource_names.unwrap_or_default());
            pods.any(|name| Some(&name) == status.pod_name.as_ref())
        }),
        "Pod" => told_of(live, status.pod_uid.as_deref()),
        _ => false,
    }
}

/// The bindings to the Role of the request that were not made by oz: they give others what it hands
/// out as soon as it exists.
pub(crate) fn strangers(keys: &Keys, request: &Request<'_>, live: &[Live]) -> Vec<String> {
    let (name, ours) = (request.object_name(), known(keys, request, live));
    let is_ours = |live: &Live| {
        let mut ours = ours.iter();
        live.key().name == name && ours.any(|one| one.reference() == live.reference())
    };
    let strange = live
        .iter()
        .filter(|live| binds(live, &name) && !is_ours(live));
    let mut names: Vec<String> = strange.map(|live| live.key().name).collect();
    names.sort();
    names
}

/// Whether this is a binding to the Role of this name.
fn binds(live: &Live, role: &str) -> bool {
    live.resource.kind == "RoleBinding" && live.object.data.get("roleRef") == Some(&role_ref(role))
}

/// How the API server writes a reference to a Role.
pub(crate) fn role_ref(role: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role})
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
        let marks = request.marks();
        let unmarked = |metadata: &&ObjectMeta| !marks.are_on(metadata);
        if metadata.iter().flatten().any(unmarked) {
            return Some(format!("the labels of what is named {name} were changed"));
        }
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
pub(crate) fn disarmed(marks: Marks<'_>, live: &Live) -> Option<Child> {
    let metadata = &live.object.metadata;
    let stays = is_held(metadata) || metadata.deletion_timestamp.is_some();
    if stays { emptied(marks, live) } else { None }
}

/// What makes an object worthless and leaves it where it is, with the marks by which it is watched.
/// `None` if it is worthless already.
pub(crate) fn emptied(marks: Marks<'_>, live: &Live) -> Option<Child> {
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
    // This very object, and no other that has its name by then.
    object.metadata.uid.clone_from(&metadata.uid);
    let marked = marks
        .labels()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    object.metadata.labels = Some(marked.into());
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
