//! Validation of locks: the target of a lock, and its latest expiry.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::instant::{after, has_come, instant};
use oz_api::{AccessLockSpec, LockTarget};

use super::text::{check_reason, is_unseen};
use super::{Found, Violation, name};

/// The maximum duration of a lock with an expiry; a longer lock needs no expiry.
pub const MAX_LOCK: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);
/// The maximum length of the name of a user or group, in bytes.
const MAX_NAME: usize = 512;

/// The operation on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The lock is created: its expiry must be in the future.
    Made,
    /// The lock is changed: it may expire immediately.
    Changed,
}

/// Returns the violations of a lock that is created or changed `now`.
#[must_use]
pub fn lock(
    metadata: &ObjectMeta,
    spec: &AccessLockSpec,
    now: Timestamp,
    when: When,
) -> Vec<Violation> {
    let mut found = Found::default();
    target(&spec.target, &mut found);
    if spec.reason.trim().is_empty() {
        found.add("spec.reason", "must be set: locked users read it");
    }
    check_reason(&spec.reason, &mut found);
    if spec.reason.contains(is_unseen) {
        found.add("spec.reason", NotAName::Unseen.to_string());
    }
    if let Some(text) = &spec.until {
        until(text, now, when, &mut found);
    }
    let owned = metadata.owner_references.as_deref();
    if owned.is_some_and(|owners| !owners.is_empty()) {
        let message = "must be empty: a lock is removed explicitly, and not with another object";
        found.add("metadata.ownerReferences", message);
    }
    found.0
}

fn target(target: &LockTarget, found: &mut Found) {
    let given = [
        target.user.is_some(),
        target.group.is_some(),
        target.namespace.is_some(),
        target.template.is_some(),
    ];
    if given.into_iter().filter(|given| *given).count() != 1 {
        found.add(
            "spec.target",
            "must be exactly one of user, group, namespace and template; create a lock for each",
        );
    }
    for (field, name) in [
        ("spec.target.user", &target.user),
        ("spec.target.group", &target.group),
    ] {
        if let Some(name) = name {
            found.check(field, name, identity(name));
        }
    }
    if let Some(namespace) = &target.namespace {
        let field = "spec.target.namespace";
        found.check(field, namespace, name::dns_label(namespace));
    }
    if let Some(template) = &target.template {
        let (namespace, name) = (&template.namespace, &template.name);
        let field = "spec.target.template.namespace";
        found.check(field, namespace, name::dns_label(namespace));
        let field = "spec.target.template.name";
        found.check(field, name, name::dns_subdomain(name));
    }
}

/// The reason why a text is not the name of a user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NotAName {
    #[error("must be from 1 to 512 bytes")]
    Length,
    #[error("must not be a pattern: name one user or one group exactly")]
    Pattern,
    #[error("must not begin or end with a blank, or contain control characters")]
    Blank,
    #[error(
        "must not contain invisible characters, or characters that change the direction of \
        text"
    )]
    Unseen,
}

/// Checks the name of a user or group as an identity provider may issue it. It is compared letter by letter.
fn identity(name: &str) -> Result<(), NotAName> {
    if name.is_empty() || name.len() > MAX_NAME {
        Err(NotAName::Length)
    } else if name.contains(['*', '?']) {
        Err(NotAName::Pattern)
    } else if name.trim() != name || name.contains(char::is_control) {
        Err(NotAName::Blank)
    } else if name.contains(is_unseen) {
        Err(NotAName::Unseen)
    } else {
        Ok(())
    }
}

fn until(text: &str, now: Timestamp, when: When, found: &mut Found) {
    let field = "spec.until";
    let Some(until) = found.check(field, text, instant(text)) else {
        return;
    };
    if when == When::Made && has_come(now, until) {
        let message = "is in the past; remove it for a lock that holds until it is deleted";
        found.check(field, text, Err::<(), _>(message));
    }
    let latest = after(now, MAX_LOCK);
    if !has_come(latest, until) {
        let message =
            "must be within ten years; remove it for a lock that holds until it is deleted";
        found.check(field, text, Err::<(), _>(message));
    }
}
