//! The gate in templates, requests and grants: the account with which it opens sessions ([`GateAccount`]),
//! the decision whether sessions go through it ([`needed`]) and its paths ([`prefix`]), the images that it
//! may add ([`image`]), the required viewers ([`watchers`]), and the session token in which the connect hook
//! reads the user of a session ([`ticket`]). The implementation of the gate is in `oz-gating`.

mod account;
pub mod image;
pub mod ticket;

use oz_api::{AccessConfig, ModerationConfig, Sessions};

pub use account::GateAccount;

use crate::access::denial::Denial;

/// The group that the gate serves.
pub const GROUP: &str = "gate.oz.wizardofoz.co";
/// The version of that group.
pub const VERSION: &str = "v1alpha1";
/// The resource: one for each request. Its subresource is `proxy`, since connections to a subresource of that
/// name may last.
pub const RESOURCE: &str = "gates";
/// The warning with which the connect hook permits a session of the gate. The API server adds it to the headers of its
/// response, also if another admission webhook denies the session after the hook has recorded it.
pub const PERMITTED: &str = "oz permits this session";

/// Returns the path below the address of the API server to which a user sends requests that the gate
/// forwards.
#[must_use]
pub fn prefix(namespace: &str, request: &str) -> String {
    of_request(namespace, request, "proxy")
}

/// Returns the path of a subresource of a request's gate, below the address of the API server.
#[must_use]
pub fn of_request(namespace: &str, request: &str, subresource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RESOURCE}/{request}/{subresource}")
}

/// Returns the gate for a template's sessions; `None` if they do not go through it.
///
/// # Errors
/// A denial if the template requires the gate, and there is no gate.
pub fn needed(
    gate: Option<&GateAccount>,
    template: &str,
    config: &AccessConfig,
) -> Result<Option<GateAccount>, Denial> {
    match (config.sessions, gate) {
        (Sessions::Gate, None) => Err(Denial {
            reason: "GateNotInstalled",
            message: format!(
                "template {template} grants access through oz's gate only \
                 (spec.accessConfig.sessions: Gate), and the operator has no gate; use another \
                 template, or have the gate installed (gate.enabled of the chart)"
            ),
        }),
        (Sessions::Gate, Some(gate)) => Ok(Some(gate.clone())),
        (Sessions::BestEffort | Sessions::Required, _) => Ok(None),
    }
}

/// Describes the required viewers in words.
#[must_use]
pub fn watchers(config: &ModerationConfig) -> String {
    let groups = config.groups.join(", ");
    match config.viewers {
        1 => format!("a user of {groups}, other than the session's user, watches it"),
        count => format!("{count} users of {groups}, other than the session's user, watch it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> GateAccount {
        "oz-system/oz-gate".parse().unwrap()
    }

    #[test]
    fn a_template_that_goes_through_the_gate_needs_one() {
        let mut config = AccessConfig {
            sessions: Sessions::Gate,
            ..AccessConfig::default()
        };
        assert_eq!(
            needed(None, "shell", &config).unwrap_err().reason,
            "GateNotInstalled"
        );
        assert_eq!(needed(Some(&gate()), "shell", &config), Ok(Some(gate())));
        config.sessions = Sessions::Required;
        assert_eq!(needed(Some(&gate()), "shell", &config), Ok(None));
        for text in ["", "oz", "/oz", "oz/", "a/b/c", "a/B", "a b/c"] {
            assert!(text.parse::<GateAccount>().is_err(), "{text:?}");
        }
        assert_eq!(gate().to_string(), "oz-system/oz-gate");
    }
}
