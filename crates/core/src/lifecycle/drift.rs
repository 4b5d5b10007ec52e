//! Detection of changes to a binding, by other users, in fields that oz owns; other users may label and
//! annotate it.

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Checks whether a finalizer keeps an object: it would outlive its deletion, and a binding that is being
/// deleted still gives access.
#[must_use]
pub fn is_held(metadata: &ObjectMeta) -> bool {
    metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Checks whether this finalizer is on an object.
#[must_use]
pub fn has_finalizer(metadata: &ObjectMeta, name: &str) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == name)
}

/// Checks whether an object is owned by the object with this UID, and deleted with it.
#[must_use]
pub fn is_owned(metadata: &ObjectMeta, uid: &str) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid)
}

/// Returns the difference between a binding and the decision; `name` is the name of the binding.
pub(crate) fn of_binding(
    name: &str,
    (role, subjects): (&RoleRef, Option<&[Subject]>),
    decided: (&RoleRef, &[Subject]),
) -> Option<String> {
    if role != decided.0 {
        return Some(format!("the roleRef of {name} was changed"));
    }
    let changed = plain(subjects.unwrap_or_default()) != plain(decided.1);
    changed.then(|| format!("the subjects of {name} were changed"))
}

/// Returns subjects as RBAC reads them: an absent API group is the kind's own.
fn plain(subjects: &[Subject]) -> Vec<Subject> {
    let mut subjects = subjects.to_vec();
    for subject in &mut subjects {
        subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
    }
    subjects
}
