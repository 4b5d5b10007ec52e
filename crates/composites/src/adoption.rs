//! The rule for the adoption of objects without a controller by a parent. The author of the parent writes the selector,
//! and children that its function does not return are deleted with the rights of the account. Without this rule, an
//! author could delete every object that the account may delete.

use kube::core::{ApiResource, DynamicObject};
use oz_api::{RBAC_GROUP, Uid, labels};
use oz_core::controller::Live;
use oz_core::kinds::requested;

use super::owner::{Owner, Selection};
use super::rights::{self, Found, Want};

/// Annotation on an object: UID of the parent that may adopt it. A user who may write it on the object may delete the
/// object.
pub const ADOPTABLE_BY: &str = "oz.wizardofoz.co/adoptable-by";

/// The maximum number of objects that one pass checks. A selector may match every object; the next pass checks the
/// rest.
const MOST_ASKED: usize = 32;

/// Kinds of which no object is adopted, with any configuration: the access of others depends on them.
const NEVER: [(&str, &str); 2] = [("", "secrets"), ("networking.k8s.io", "networkpolicies")];

/// Returns the candidates that an owner adopts, or the checks that are required first.
pub(super) fn adopted(
    owner: &Owner<'_>,
    found: &[(Want, Found)],
    adoptable: Vec<Live>,
) -> Result<Vec<Live>, Vec<Want>> {
    let adopts_all = owner.rules.selection == Selection::Stated { adopts_all: true };
    // Unproven authors have no permissions.
    let authors = rights::authors_of(owner).ok();
    let mut adopted = Vec::new();
    let mut asked = Vec::new();
    let requested = requested();
    let candidates = adoptable.into_iter();
    for live in candidates.filter(|live| !is_never(live, &requested)) {
        if adopts_all || is_given_to(owner.uid, &live) {
            adopted.push(live);
        } else if let Some(authors) = &authors
            && asked.len() < MOST_ASKED
        {
            let want = rights::adoption(authors, &live);
            let answer = want.is_allowed(found);
            adopted.extend(answer.filter(|may| *may).map(|_| live));
            asked.push((want, answer));
        }
    }
    let unknown = asked.into_iter().filter(|(_, answer)| answer.is_none());
    let unknown: Vec<Want> = unknown.map(|(want, _)| want).collect();
    if unknown.is_empty() {
        Ok(adopted)
    } else {
        Err(unknown)
    }
}

/// Checks whether no parent may adopt the object: it grants rights, users request it, or oz created it.
fn is_never(live: &Live, requested: &[ApiResource]) -> bool {
    let kind = (live.resource.group.as_str(), live.resource.plural.as_str());
    let is_requested = |one: &ApiResource| (one.group.as_str(), one.plural.as_str()) == kind;
    kind.0 == RBAC_GROUP
        || requested.iter().any(is_requested)
        || NEVER.contains(&kind)
        || is_of_oz(&live.object)
}

/// Checks whether oz created the object, by its labels.
pub(super) fn is_of_oz(object: &DynamicObject) -> bool {
    let mut labels = object.metadata.labels.iter().flatten();
    labels.any(|(name, value)| {
        labels::is_own(name) || (name == labels::MANAGED_BY && value == labels::OZ)
    })
}

/// Checks whether the object names the parent.
fn is_given_to(uid: Uid<'_>, live: &Live) -> bool {
    let metadata = &live.object.metadata;
    let annotations = metadata.annotations.as_ref();
    let annotated = annotations.and_then(|annotations| annotations.get(ADOPTABLE_BY));
    let labelled = labels::said_controller(metadata);
    let named = [annotated.map(String::as_str), labelled];
    named.contains(&Some(uid.as_str()))
}
