//! The rule of a template about emergencies: the users who get access without approvals.

use oz_api::{AccessConfig, EmergencyConfig, Requester};

use super::denial::{Denial, format_subjects, list};
use super::person::is_listed;

/// The maximum length of a requester's name and UID in bytes: an audit record holds no longer ones in full.
const MAX_NAME: usize = 512;

/// Checks whether a template grants a requester access in an emergency.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may(requester: &Requester, template: &str, config: &AccessConfig) -> Result<String, Denial> {
    let field = "spec.accessConfig.emergency";
    may_declare(requester, template, (config.emergency.as_ref(), field))
}

/// Checks the same by the emergency settings of a template, and their field in it.
///
/// # Errors
/// As [`may`].
pub fn may_declare(
    requester: &Requester,
    template: &str,
    (emergency, field): (Option<&EmergencyConfig>, &str),
) -> Result<String, Denial> {
    let user = &requester.user;
    let Some(emergency) = emergency else {
        return Err(Denial::new(
            "EmergencyAccessDisabled",
            format!(
                "template {template} grants no access in emergencies; create a request without \
                 spec.emergency, or have the template's owners set {field}"
            ),
        ));
    };
    if requester.user.len() > MAX_NAME || requester.uid.len() > MAX_NAME {
        let message = format!(
            "the name or UID of the requester is longer than {MAX_NAME} bytes, the maximum for a \
             review; create a request without spec.emergency"
        );
        return Err(Denial::new("NameTooLong", message));
    }
    if is_listed(&emergency.groups, &emergency.users, requester) {
        return Ok(format!(
            "template {template} grants {user} access in emergencies"
        ));
    }
    Err(Denial::new(
        "EmergencyNotAllowed",
        format!(
            "template {template} does not grant {user} access in emergencies, but only {}; create \
             a request without spec.emergency, or have one of these users create it",
            list(&format_subjects(&emergency.users, &emergency.groups))
        ),
    ))
}
