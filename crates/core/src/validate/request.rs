//! Validation of requests. It does not decide whether the requester may have the requested access.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;

use super::text::{check_reason, plain};
use super::{Found, Violation, name, ticket};
use crate::kinds::Terms;

/// The maximum length of the name of a request: `-`, eight characters of its UID and this fit into 253, the
/// maximum length of the name of a pod. The name of a dedicated pod may have to be shorter, and is shortened.
pub const MAX_REQUEST_NAME: usize = 244;
/// The maximum length of `generateName`: the API server cuts a longer one, and then the name would not begin
/// with the text in the requester's stamp.
pub const MAX_GENERATE_NAME: usize = 58;

/// A valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedRequest {
    /// Name of the template.
    pub template: String,
    /// The requested duration of access; `None` for the template's default. Never negative or zero.
    pub duration: Option<GoDuration>,
    /// The pod to connect to; `None` for any. Always `None` in a request for a dedicated pod.
    pub target_pod: Option<String>,
    /// The container to connect to; `None` for any permitted one.
    pub container: Option<String>,
    /// The reason for the request.
    pub reason: Option<String>,
    /// The request that this one continues.
    pub extends: Option<String>,
}

/// Checks the terms of a request of any kind.
///
/// # Errors
///
/// All violations of the request.
pub fn request(
    metadata: &ObjectMeta,
    terms: &Terms<'_>,
) -> Result<ValidatedRequest, Vec<Violation>> {
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    let asked = ValidatedRequest {
        template: terms.template.to_owned(),
        duration: None,
        target_pod: owned(terms.target_pod),
        container: owned(terms.container),
        reason: owned(terms.reason),
        extends: owned(terms.extends),
    };
    let mut found = Found::default();
    own_name(metadata, &mut found);
    for (field, name) in [
        ("spec.templateName", Some(&asked.template)),
        ("spec.targetPod", asked.target_pod.as_ref()),
        ("spec.extends", asked.extends.as_ref()),
    ] {
        if let Some(name) = name {
            found.check(field, name, name::dns_subdomain(name));
        }
    }
    let duration = terms.duration.and_then(|text| lifetime(text, &mut found));
    if let Some(container) = &asked.container {
        found.check("spec.container", container, name::dns_label(container));
    }
    if let Some(reason) = &asked.reason {
        if terms.emergency {
            plain("spec.reason", reason, &mut found);
        } else {
            check_reason(reason, &mut found);
        }
    }
    if let Some(named) = terms.ticket {
        found.check("spec.ticket", named, ticket::ticket(named));
    }
    if asked.extends.is_some() && asked.extends == metadata.name {
        found.add("spec.extends", "must name another request");
    }
    found.finish(Some(ValidatedRequest { duration, ..asked }))
}

pub(super) fn own_name(metadata: &ObjectMeta, found: &mut Found) {
    let (field, name, longest) = match (&metadata.name, &metadata.generate_name) {
        (Some(name), _) if !name.is_empty() => ("metadata.name", name, MAX_REQUEST_NAME),
        (_, Some(prefix)) => ("metadata.generateName", prefix, MAX_GENERATE_NAME),
        // The API server rejects an object without a name.
        _ => return,
    };
    if name.len() > longest {
        let message = format!("must be at most {longest} characters");
        found.check(field, name, Err::<(), _>(message));
    }
}

/// Reads the duration; zero counts as absent.
fn lifetime(text: &str, found: &mut Found) -> Option<GoDuration> {
    let field = "spec.duration";
    let duration = found.duration(field, text)?;
    if duration.is_negative() {
        found.check(field, text, Err::<(), _>("must not be negative"));
    }
    Some(duration).filter(|duration| duration.is_positive())
}
