//! The refusals that several hooks give, each with what to do next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_admission::{Notes, Rejection, Review};
use oz_core::access::denial::Denial;
use oz_core::validate::{MetadataBounds, Violation, metadata};

/// An object breaks rules for its fields.
pub(crate) fn invalid(kind: &str, violations: &[Violation]) -> Rejection {
    let message = format!("{kind} is invalid: {}", Violation::list(violations));
    violations.iter().fold(
        Rejection::invalid("Invalid", message),
        |rejection, violation| {
            rejection.cause(
                violation.field.clone(),
                "FieldValueInvalid",
                violation.message.clone(),
            )
        },
    )
}

/// Refuses metadata beyond its bounds, unless that is how `old` was.
///
/// # Errors
/// The refusal.
pub(crate) fn bounded(
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
    bounds: &MetadataBounds,
) -> Result<(), Rejection> {
    let violations = metadata(new, old, bounds);
    if violations.is_empty() {
        return Ok(());
    }
    let message = Violation::list(&violations);
    Err(violations.iter().fold(
        Rejection::invalid("MetadataTooLarge", message),
        |rejection, violation| {
            rejection.cause(
                violation.field.clone(),
                "FieldValueTooLong",
                violation.message.clone(),
            )
        },
    ))
}

/// Something is wrong with one field.
pub(crate) fn forbidden(reason: &'static str, field: &str, message: &str) -> Rejection {
    Rejection::forbidden(reason, message.to_owned()).cause(
        field.to_owned(),
        "FieldValueForbidden",
        message.to_owned(),
    )
}

/// What was decided against whoever asks, in its own words.
pub(crate) fn denied(denial: Denial) -> Rejection {
    Rejection::forbidden(denial.reason, denial.message)
}

/// What cannot change is changed.
pub(crate) fn immutable(field: &str, message: &str) -> Rejection {
    forbidden("Immutable", field, message)
}

/// Access to oz itself is asked for or offered.
pub(crate) fn own_namespace(namespace: &str) -> Rejection {
    Rejection::forbidden(
        "OwnNamespace",
        format!(
            "oz lets nobody into its own namespace {namespace}: whoever gets into its pods could \
             grant anything; use another namespace"
        ),
    )
}

/// Refuses what is asked for in a namespace that the operator does not watch: it would never be given,
/// and what has a finalizer would never go. What has no namespace is served everywhere.
///
/// # Errors
/// The refusal.
pub(crate) fn served(namespaces: &[String], namespace: Option<&str>) -> Result<(), Rejection> {
    let Some(namespace) = namespace else {
        return Ok(());
    };
    if namespaces.is_empty() || namespaces.iter().any(|served| served == namespace) {
        return Ok(());
    }
    Err(Rejection::forbidden(
        "NamespaceNotServed",
        format!(
            "oz gives no access in namespace {namespace}: it serves {} only; ask an administrator to \
             add the namespace (access.namespaces of the chart, --access-namespaces)",
            namespaces.join(", ")
        ),
    ))
}

/// A status is written, which only the operator may: people and programs rely on what stands there.
pub(crate) fn status_is_the_operators<K>(
    review: &Review<K>,
    operator: &str,
    next: &str,
) -> Result<Notes, Rejection> {
    if review.user.username == operator {
        return Ok(Notes::none());
    }
    Err(Rejection::forbidden(
        "StatusReserved",
        format!(
            "only oz's operator ({operator}) writes the status of a {}: {next}",
            review.kind.kind
        ),
    ))
}
