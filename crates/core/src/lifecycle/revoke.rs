//! The steps of a revocation: objects that give access are deleted first, objects that only describe it
//! second; objects that a finalizer keeps are emptied before.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use oz_api::{Uid, labels};
use serde_json::{Value, json};

use super::drift::is_held;
use crate::access::pod_state;
use crate::controller::{Child, Live, Plan, Step};

/// The labels that name the object for which another object was created, and by which the watch selects it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a> {
    pub(crate) kind: &'a str,
    pub(crate) uid: Uid<'a>,
}

impl Marks<'_> {
    /// Checks whether an object has these labels, so that the watch shows it.
    pub(crate) fn are_on(self, metadata: &ObjectMeta) -> bool {
        self.labels()
            .into_iter()
            .all(|(name, value)| labels::value_of(metadata, name) == Some(value))
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        [
            (labels::MANAGED_BY, labels::OZ),
            (labels::OWNER_KIND, self.kind),
            (labels::OWNER_UID, self.uid.as_str()),
        ]
    }
}

/// Removes objects that give access first, objects that only describe it second.
pub(crate) fn remove(marks: Marks<'_>, live: &[Live]) -> Plan {
    let (powerful, others) = by_power(live);
    Plan::default()
        .then(disarm(marks, live))
        .then(powerful)
        .then(others)
}

/// Empties objects that a finalizer keeps.
pub(crate) fn disarm<'a>(marks: Marks<'_>, live: impl IntoIterator<Item = &'a Live>) -> Vec<Step> {
    live.into_iter()
        .filter_map(|live| disarmed(marks, live))
        .map(Step::Apply)
        .collect()
}

/// Returns the deletions of objects that give access, and of the others. An object that is being deleted is
/// skipped.
pub(crate) fn by_power(live: &[Live]) -> (Vec<Step>, Vec<Step>) {
    let (powerful, others): (Vec<_>, Vec<_>) = live
        .iter()
        .filter(|live| !is_leaving(live))
        .partition(|live| gives_access(live));
    let delete = |live: Vec<&Live>| {
        live.into_iter()
            .map(|live| Step::Delete(live.reference()))
            .collect()
    };
    (delete(powerful), delete(others))
}

/// Checks whether an object gives access: a binding, with any name, or a dedicated pod.
pub(crate) fn gives_access(live: &Live) -> bool {
    matches!(
        live.resource.kind.as_str(),
        "RoleBinding" | "ClusterRoleBinding" | "Pod"
    )
}

/// Checks whether this object still gives access: a binding with subjects, deleted or not, or a pod of which
/// the containers were not seen to have ended.
pub(crate) fn still_gives_access(live: &Live) -> bool {
    match live.resource.kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => has_entries(live, "subjects"),
        "Pod" => live
            .parse::<Pod>()
            .is_none_or(|pod| !pod_state::has_ended(&pod)),
        _ => false,
    }
}

/// Returns the change that empties an object that a finalizer keeps: a binding without subjects, a Role
/// without rules. Kubernetes applies both until they are gone. `None` if nothing is needed.
pub(crate) fn disarmed(marks: Marks<'_>, live: &Live) -> Option<Child> {
    let metadata = &live.object.metadata;
    let stays = is_held(metadata) || metadata.deletion_timestamp.is_some();
    if stays { emptied(marks, live) } else { None }
}

/// Returns the change that empties an object and keeps it in place, with the labels by which it is watched.
/// `None` if it is empty already.
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
    // This object, and no later object with its name.
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

pub(crate) fn has_entries(live: &Live, field: &str) -> bool {
    let entries = live.object.data.get(field).and_then(Value::as_array);
    entries.is_some_and(|entries| !entries.is_empty())
}

/// Checks whether a deletion would have no effect: the object is being deleted immediately.
pub(crate) fn is_leaving(live: &Live) -> bool {
    let metadata = &live.object.metadata;
    metadata.deletion_timestamp.is_some()
        && metadata
            .deletion_grace_period_seconds
            .is_none_or(|seconds| seconds <= pod_state::GRACE_SECONDS)
}
