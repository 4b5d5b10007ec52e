//! The denials that several hooks use, each with the next step.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_admission::{Notes, Rejection, Review};
use oz_api::IdentityError;
use oz_core::access::denial::Denial;
use oz_core::access::rules::{CreationDenial, Served, reserved};
use oz_core::validate::{MetadataBounds, Violation, metadata};

/// Returns the denial of an object that violates the rules of its fields.
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

/// Returns the namespace of a review of a namespaced kind.
///
/// # Errors
/// The denial, if the review has none: the registration of the hook was changed.
pub(crate) fn namespace<K>(review: &Review<K>) -> Result<&str, Rejection> {
    review.namespace.as_deref().ok_or_else(|| {
        let message = format!(
            "{} {} has no namespace, and this hook serves namespaced kinds only; its registration \
             was changed, and oz-webhook repairs it when it runs",
            review.kind.kind,
            review.display_name()
        );
        Rejection::bad_request("NamespaceMissing", message)
    })
}

/// Denies metadata that exceeds its bounds, unless `old` exceeded them in the same way.
///
/// # Errors
/// The denial.
pub(crate) fn bounded(
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
    bounds: &MetadataBounds,
) -> Result<(), Rejection> {
    let violations = metadata(new, old, bounds);
    match violations.is_empty() {
        true => Ok(()),
        false => Err(too_large(&violations)),
    }
}

fn too_large(violations: &[Violation]) -> Rejection {
    let message = Violation::list(violations);
    violations.iter().fold(
        Rejection::invalid("MetadataTooLarge", message),
        |rejection, violation| {
            rejection.cause(
                violation.field.clone(),
                "FieldValueTooLong",
                violation.message.clone(),
            )
        },
    )
}

/// Returns the denial of a new object of this kind by a rule.
pub(crate) fn not_created(kind: &str, denial: CreationDenial) -> Rejection {
    match denial {
        CreationDenial::TooLarge(violations) => too_large(&violations),
        CreationDenial::Invalid(violations) => invalid(kind, &violations),
        CreationDenial::Forbidden(denial, None) => denied(denial),
        CreationDenial::Forbidden(denial, Some(field)) => {
            forbidden(denial.reason, &field, &denial.message)
        }
        CreationDenial::Undecided(failure) => Rejection::new(503, failure.reason, failure.message),
    }
}

/// Returns the denial because of one field.
pub(crate) fn forbidden(reason: &'static str, field: &str, message: &str) -> Rejection {
    Rejection::forbidden(reason, message.to_owned()).cause(
        field.to_owned(),
        "FieldValueForbidden",
        message.to_owned(),
    )
}

/// Returns the rejection because of an object without identity.
pub(crate) fn unidentified(error: IdentityError) -> Rejection {
    Rejection::new(500, "NotStored", error.to_string())
}

/// Returns a denial by the rules as the response of a hook, with its reason and message.
pub(crate) fn denied(denial: Denial) -> Rejection {
    Rejection::forbidden(denial.reason, denial.message)
}

/// Returns the denial of a change of an immutable field.
pub(crate) fn immutable(field: &str, message: &str) -> Rejection {
    forbidden("Immutable", field, message)
}

/// Returns the denial of access to oz's own namespace.
pub(crate) fn own_namespace(namespace: &str) -> Rejection {
    denied(reserved(namespace))
}

/// Denies an object in a namespace that the operator does not serve.
///
/// # Errors
/// The denial.
pub(crate) fn served(namespaces: &[String], namespace: Option<&str>) -> Result<(), Rejection> {
    let own = None;
    Served { own, namespaces }.admit(namespace).map_err(denied)
}

/// Denies a write of a status by others than the operator: users and programs rely on the status.
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
