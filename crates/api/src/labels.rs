//! Labels and annotations that oz writes and reads, in one place: those that connect a child to its object, and those
//! that carry a signed statement.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest, Sha256};

use crate::encode::hex;

/// Label: the manager of an object; `oz` on all objects that oz creates.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const OZ: &str = "oz";
/// Label: UID of the object that a child was made for.
pub const OWNER_UID: &str = "oz.wizardofoz.co/owner-uid";
/// Label: kind of the object that a child was made for.
pub const OWNER_KIND: &str = "oz.wizardofoz.co/owner-kind";
/// Annotation: name of the object that a child was made for. Not a label: names may be 253
/// characters long, label values 63.
pub const OWNER_NAME: &str = "oz.wizardofoz.co/owner-name";
/// Label on the Role of a grant. The admission policy `role-names` prevents other users from writing it, and
/// `copied-bindings` checks bindings to Roles without it.
pub const GRANT_ROLE: &str = "oz.wizardofoz.co/grant-role";

/// Annotation on a request: the user name that the API server reported for its creation.
pub const REQUESTED_BY: &str = "crds.wizardofoz.co/requested-by";
/// Annotation on a request: the signed stamp, see `oz_core::access::stamp`.
pub const REQUESTER: &str = "crds.wizardofoz.co/requester";
/// The annotation of the operator's canary, by which the webhook identifies an API server.
pub const CANARY: &str = "crds.wizardofoz.co/canary";
/// Label on an approval or denial of a request: UID of the request.
pub const REQUEST_UID: &str = "crds.wizardofoz.co/request-uid";
/// Annotation on a review: the seal over its content, see `oz_core::access::emergency::review`.
pub const REVIEW: &str = "crds.wizardofoz.co/review";
/// Annotation on a review: the user name of its author.
pub const REVIEWED_BY: &str = "crds.wizardofoz.co/reviewed-by";
/// Annotation on a template: its author, see `oz_core::access::author`.
pub const AUTHOR: &str = "crds.wizardofoz.co/author";
/// Annotation on the first object of a grant: the signed decision, see `oz_core::access::grant`.
pub const GRANT: &str = "oz.wizardofoz.co/grant";

/// Annotation on the Job of a run: the operator's signature, see `oz_runs::voucher`.
pub const VOUCHER: &str = "oz.wizardofoz.co/voucher";

/// Label on an AuditEvent: the user.
pub const AUDIT_USER: &str = "oz.wizardofoz.co/user";
/// Label on an AuditEvent: UID of its request.
pub const AUDIT_GRANT: &str = "oz.wizardofoz.co/grant-uid";
/// Label on an AuditEvent: the decision.
pub const AUDIT_DECISION: &str = "oz.wizardofoz.co/decision";
/// Label on an AuditEvent: the kind of the event.
pub const AUDIT_KIND: &str = "oz.wizardofoz.co/kind";
/// Label on an AuditEvent: the process that wrote it.
pub const AUDIT_WRITER: &str = "oz.wizardofoz.co/writer";
/// Label on a namespace: with the value `true`, a connection to its pods requires a grant.
pub const ENFORCE: &str = "oz.wizardofoz.co/enforce";

/// The prefix of oz's labels and annotations on children.
const OF_CHILDREN: &str = "oz.wizardofoz.co/";
/// The prefixes of oz's own labels and annotations.
const OWN_PREFIXES: [&str; 2] = [OF_CHILDREN, "crds.wizardofoz.co/"];

/// Checks whether a label or annotation is one by which oz identifies its children, by its key.
#[must_use]
pub fn is_of_child(key: &str) -> bool {
    key.starts_with(OF_CHILDREN)
}

/// Checks whether a label or annotation is oz's, by its key.
#[must_use]
pub fn is_own(key: &str) -> bool {
    OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns the text as the value of a label. A text that cannot be a label value is adapted, with a part of its digest,
/// so that two texts never share a value.
#[must_use]
pub fn value(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let fits = text.len() <= 63
        && text.chars().all(|c| plain(c) || "-_.".contains(c))
        && text.starts_with(plain)
        && text.ends_with(plain);
    if fits || text.is_empty() {
        return text.to_owned();
    }
    let kept: String = text
        .chars()
        .map(|c| if plain(c) || "-.".contains(c) { c } else { '_' })
        .skip_while(|&c| !plain(c))
        .take(50)
        .collect();
    format!("{kept}-{}", &hex(&Sha256::digest(text))[..10])
        .trim_start_matches('-')
        .to_owned()
}

/// Marks a child's metadata as created for one object.
pub fn mark(metadata: &mut ObjectMeta, owner_kind: &str, owner_name: &str, owner_uid: &str) {
    let labels = metadata.labels.get_or_insert_with(BTreeMap::new);
    labels.insert(MANAGED_BY.to_owned(), OZ.to_owned());
    labels.insert(OWNER_KIND.to_owned(), owner_kind.to_owned());
    labels.insert(OWNER_UID.to_owned(), owner_uid.to_owned());
    metadata
        .annotations
        .get_or_insert_with(BTreeMap::new)
        .insert(OWNER_NAME.to_owned(), owner_name.to_owned());
}

/// Returns the UID of the object that a child was made for, by its label.
#[must_use]
pub fn owner_uid(child: &ObjectMeta) -> Option<&str> {
    value_of(child, OWNER_UID)
}

/// Returns the kind of the object that a child was made for, by its label.
#[must_use]
pub fn owner_kind(child: &ObjectMeta) -> Option<&str> {
    value_of(child, OWNER_KIND)
}

/// Returns the labels of an object, for a selector; an object without labels has an empty map.
#[must_use]
pub fn of_object(metadata: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    metadata.labels.as_ref().unwrap_or(&NONE)
}

/// Returns the value of one label of an object.
#[must_use]
pub fn value_of<'a>(metadata: &'a ObjectMeta, label: &str) -> Option<&'a str> {
    let labels = metadata.labels.as_ref()?;
    labels.get(label).map(String::as_str)
}

/// Label that a composite controller generates on children: the UID of their parent.
pub const CONTROLLER_UID: &str = "controller-uid";

/// Returns the owner reference of the controller of an object.
#[must_use]
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Returns the UID of the parent that an object names in [`CONTROLLER_UID`].
#[must_use]
pub fn said_controller(metadata: &ObjectMeta) -> Option<&str> {
    value_of(metadata, CONTROLLER_UID)
}

/// Returns the label selector of all children made for objects of one kind.
#[must_use]
pub fn children_of(owner_kind: &str) -> String {
    format!("{OWNER_KIND}={owner_kind}")
}

/// Returns the label selector of all other objects, which the watches of those children do not show.
#[must_use]
pub fn others_than_children_of(owner_kinds: &[&str]) -> String {
    format!("{OWNER_KIND} notin ({})", owner_kinds.join(","))
}
