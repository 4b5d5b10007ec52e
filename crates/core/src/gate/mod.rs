//! What templates, requests and grants say of the gate: as whom it opens sessions ([`GateAccount`]), whether sessions go
//! through it ([`needed`]) and where ([`prefix`]), which images it may add ([`image`]), who has to watch ([`watchers`]),
//! and the word by which the connect hook knows whose session it is ([`ticket`]). What the gate does is in `oz-gating`.

mod account;
pub mod image;
pub mod ticket;

use oz_api::{AccessConfig, ModerationConfig, Sessions};

pub use account::GateAccount;

use crate::access::denial::Denial;

/// The group that the gate serves.
pub const GROUP: &str = "gate.oz.wizardofoz.co";
/// Its version.
pub const VERSION: &str = "v1alpha1";
/// The resource: one for each request. Its subresource is called `proxy`, since what is called so may last.
pub const RESOURCE: &str = "gates";

/// Where a user sends what the gate passes on for a request, below the address of the API server.
#[must_use]
pub fn prefix(namespace: &str, request: &str) -> String {
    of_request(namespace, request, "proxy")
}

/// Where a subresource of a request's gate is, below the address of the API server.
#[must_use]
pub fn of_request(namespace: &str, request: &str, subresource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RESOURCE}/{request}/{subresource}")
}

/// The gate that a template's sessions go through; `None` if they do not.
///
/// # Errors
/// If they do, and there is no gate.
pub fn needed(
    gate: Option<&GateAccount>,
    template: &str,
    config: &AccessConfig,
) -> Result<Option<GateAccount>, Denial> {
    match (config.sessions, gate) {
        (Sessions::Gate, None) => Err(Denial {
            reason: "NoGate",
            message: format!(
                "template {template} lets people in through oz's gate alone (spec.accessConfig.sessions: \
                 Gate), and the operator knows of none; use another template, or have the gate installed \
                 (gate.enabled of the chart, --gate-service-account of the operator)"
            ),
        }),
        (Sessions::Gate, Some(gate)) => Ok(Some(gate.clone())),
        (Sessions::BestEffort | Sessions::Required, _) => Ok(None),
    }
}

/// Who has to watch, in words.
#[must_use]
pub fn watchers(config: &ModerationConfig) -> String {
    let groups = config.groups.join(", ");
    match config.viewers {
        1 => format!("somebody of {groups}, other than its user, watches it"),
        count => format!("{count} people of {groups}, none of them its user, watch it"),
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
        assert_eq!(needed(None, "shell", &config).unwrap_err().reason, "NoGate");
        assert_eq!(needed(Some(&gate()), "shell", &config), Ok(Some(gate())));
        config.sessions = Sessions::Required;
        assert_eq!(needed(Some(&gate()), "shell", &config), Ok(None));
        for text in ["", "oz", "/oz", "oz/", "a/b/c", "a/B", "a b/c"] {
            assert!(text.parse::<GateAccount>().is_err(), "{text:?}");
        }
        assert_eq!(gate().to_string(), "oz-system/oz-gate");
    }
}
