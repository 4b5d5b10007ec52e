//! Detection of changes to a binding, by other users, in fields that oz owns; other users may label and
//! annotate it.

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Checks whether a finalizer keeps an object: it would outlive its deletion, and a binding that is being
/// deleted still gives access.
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
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

/// A change by another user of an object that oz wrote; most name the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    /// The sealed decision on the Role of this request.
    #[error("the sealed decision on the Role of {0} was changed")]
    Decision(String),
    /// The Role of this request was deleted.
    #[error("the Role of {0} was deleted")]
    RoleDeleted(String),
    /// The binding was deleted, or carries another decision.
    #[error("the binding {0} was deleted, or the decision that it carries was changed")]
    BindingOrDecision(String),
    /// The spec of the object that asked.
    #[error("the spec was changed without admission")]
    Spec,
    /// The stamp of this request.
    #[error("the stamp of {0} was changed")]
    Stamp(String),
    /// The rules of this Role.
    #[error("the rules of Role {0} were changed")]
    Rules(String),
    /// The labels of the object.
    #[error("the labels of {0} were changed")]
    Labels(String),
    /// A finalizer keeps the object.
    #[error("a finalizer was added to {0}")]
    Finalizer(String),
    /// The owner reference of the object.
    #[error("the owner reference of {0} was removed")]
    Owner(String),
    /// The Role of the binding.
    #[error("the roleRef of {0} was changed")]
    RoleRef(String),
    /// The subjects of the binding.
    #[error("the subjects of {0} were changed")]
    Subjects(String),
    /// The object is no binding any more.
    #[error("{0} cannot be decoded as a binding")]
    NoBinding(String),
    /// The object was deleted.
    #[error("{0} was deleted")]
    Deleted(String),
    /// The object is about to go.
    #[error("{0} is being deleted")]
    Leaving(String),
    /// Another object has the name.
    #[error("{0} was replaced by another")]
    Replaced(String),
    /// The content of the object.
    #[error("{0} was changed")]
    Changed(String),
    /// The images or limits of the pod.
    #[error("the images or limits of {0} were changed")]
    Containers(String),
    /// The pod is not the one that oz made.
    #[error("{0} was replaced or changed before its Role was created")]
    Exchanged(String),
}

/// Returns the difference between a binding and the decision; `name` is the name of the binding.
pub(crate) fn of_binding(
    name: &str,
    (role, subjects): (&RoleRef, Option<&[Subject]>),
    decided: (&RoleRef, &[Subject]),
) -> Option<Drift> {
    if role != decided.0 {
        return Some(Drift::RoleRef(name.to_owned()));
    }
    let changed = plain(subjects.unwrap_or(&[])) != plain(decided.1);
    changed.then(|| Drift::Subjects(name.to_owned()))
}

/// Returns subjects as RBAC reads them: an absent API group is the kind's own.
fn plain(subjects: &[Subject]) -> Vec<Subject> {
    let mut subjects = subjects.to_vec();
    for subject in &mut subjects {
        subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
    }
    subjects
}
