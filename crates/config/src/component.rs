//! The components, the parts of the configuration that each of them reads, and their digest.

use oz_api::names;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A component that reads a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter)]
pub enum Component {
    /// The operator.
    Operator,
    /// The webhook.
    Webhook,
    /// The gate.
    Gate,
    /// The broker.
    Broker,
}

impl Component {
    /// Returns the name of the program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Operator => names::OPERATOR,
            Self::Webhook => names::WEBHOOK,
            Self::Gate => names::GATE,
            Self::Broker => names::BROKER,
        }
    }

    /// Returns the sections of the configuration that the component reads. The chart restarts the pods of a component
    /// when one of these sections changes.
    #[must_use]
    pub const fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Operator => &[
                "installation",
                "log",
                "access",
                "transient",
                "composites",
                "audit",
                "notifications",
                "tickets",
                "operator",
                "webhook",
                "gate",
                "harness",
            ],
            Self::Webhook => &[
                "installation",
                "log",
                "access",
                "transient",
                "composites",
                "audit",
                "notifications",
                "webhook",
                "harness",
            ],
            Self::Gate => &[
                "installation",
                "log",
                "access",
                "audit",
                "notifications",
                "gate",
            ],
            Self::Broker => &["installation", "log", "audit", "notifications", "harness"],
        }
    }
}

/// Returns the digest of the sections of a document that a component reads.
pub(crate) fn digest(document: &Map<String, Value>, component: Component) -> String {
    let mut sha = Sha256::new();
    for section in component.sections() {
        let value = document.get(*section).unwrap_or(&Value::Null);
        // The names of fields are in the order of the alphabet.
        sha.update(format!("{section}={value}\n"));
    }
    let digest = sha.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
