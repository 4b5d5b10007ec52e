//! What somebody else did to a binding, in fields that are ours; others may label and annotate.

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether something keeps an object from going: it would outlive its deletion, and a binding that is
/// being deleted still gives access.
#[must_use]
pub fn is_held(metadata: &ObjectMeta) -> bool {
    metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Whether this finalizer is on an object.
#[must_use]
pub fn has_finalizer(metadata: &ObjectMeta, name: &str) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == name)
}

/// Whether an object goes with the object of this UID.
#[must_use]
pub fn is_owned(metadata: &ObjectMeta, uid: &str) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid)
}

/// What differs between a binding and what was decided: `name` is what it is called.
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

/// Subjects as RBAC reads them: an absent API group is the kind's own.
fn plain(subjects: &[Subject]) -> Vec<Subject> {
    let mut subjects = subjects.to_vec();
    for subject in &mut subjects {
        subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
    }
    subjects
}
