//! The security contexts of pods and containers of runs and seeds.

use serde_json::{Value, json};

use super::reserved;

/// The security context of a container of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// A user without any capability. Every container but one has this context.
    Confined {
        /// The user, never root.
        user: i64,
        /// Whether the container cannot write to its root filesystem.
        is_read_only: bool,
    },
    /// Root with the capability NET_ADMIN alone: the init container that confines the network of the pod, and ends before
    /// any other container starts.
    NetworkInit,
}

impl Security {
    /// Returns the context as a field of a container.
    pub(super) fn context(self) -> Value {
        let mut context = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "runAsGroup": reserved::AGENT_USER,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        match self {
            Self::Confined { user, is_read_only } => {
                context["runAsUser"] = json!(user);
                if is_read_only {
                    context["readOnlyRootFilesystem"] = json!(true);
                }
            }
            Self::NetworkInit => {
                context["capabilities"]["add"] = json!(["NET_ADMIN"]);
                context["readOnlyRootFilesystem"] = json!(true);
                context["runAsNonRoot"] = json!(false);
                context["runAsUser"] = json!(0);
                context["runAsGroup"] = json!(0);
            }
        }
        context
    }
}

/// Returns the security context of a container without any capability.
pub(super) fn confined(user: i64, is_read_only: bool) -> Value {
    Security::Confined { user, is_read_only }.context()
}

/// Returns the security context of a pod that writes to a workspace.
pub(super) fn confined_pod() -> Value {
    json!({
        "fsGroup": reserved::AGENT_USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}
