//! The rule of a template about emergencies: the users who get access without approvals.

use oz_api::{AccessConfig, Requester};

use super::denial::{Denial, list, named};
use super::person::is_listed;

/// The maximum length of a requester's name and UID in bytes: an audit record holds no longer ones in full.
const MAX_NAME: usize = 512;

/// Checks whether a template grants a requester access in an emergency.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may(requester: &Requester, template: &str, config: &AccessConfig) -> Result<String, Denial> {
    let user = &requester.user;
    let Some(emergency) = &config.emergency else {
        return Err(Denial::new(
            "NoEmergency",
            format!(
                "template {template} lets nobody in for an emergency; ask without spec.emergency, or have its \
                 owners set spec.accessConfig.emergency"
            ),
        ));
    };
    if requester.user.len() > MAX_NAME || requester.uid.len() > MAX_NAME {
        let message = format!(
            "the name or UID of whoever asks is longer than {MAX_NAME} bytes, which no review can name; \
             ask without spec.emergency"
        );
        return Err(Denial::new("NameTooLong", message));
    }
    if is_listed(&emergency.groups, &emergency.users, requester) {
        return Ok(format!(
            "template {template} lets {user} in for an emergency"
        ));
    }
    Err(Denial::new(
        "NotForEmergencies",
        format!(
            "{user} is none of those whom template {template} lets in for an emergency ({}); \
             ask without spec.emergency, or have one of them ask",
            list(&named(&emergency.users, &emergency.groups))
        ),
    ))
}
