//! The components, the parts of the configuration that each of them reads, and their digest.

use oz_api::names;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use self::Component::{Broker, Gate, Operator, Webhook};

/// A component that reads a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The sections of the configuration, with the components other than the operator that read them. The operator reads
/// all.
const SECTIONS: [(&str, &[Component]); 13] = [
    ("installation", &[Webhook, Gate, Broker]),
    ("log", &[Webhook, Gate, Broker]),
    ("outbound", &[Webhook, Gate, Broker]),
    ("access", &[Webhook, Gate]),
    ("transient", &[Webhook]),
    ("composites", &[Webhook]),
    ("audit", &[Webhook, Gate, Broker]),
    ("notifications", &[Webhook, Gate, Broker]),
    ("tickets", &[]),
    ("operator", &[]),
    ("webhook", &[Webhook]),
    ("gate", &[Gate]),
    ("harness", &[Webhook, Broker]),
];

impl Component {
    /// All components.
    pub const ALL: [Self; 4] = [Operator, Webhook, Gate, Broker];

    /// Returns the component with a name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns the name of the component, such as `operator`: the label of its pods.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operator => "operator",
            Webhook => "webhook",
            Gate => "gate",
            Broker => "broker",
        }
    }

    /// Returns the name of the program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Operator => names::OPERATOR,
            Webhook => names::WEBHOOK,
            Gate => names::GATE,
            Broker => names::BROKER,
        }
    }

    /// Returns the sections of the configuration that the component reads. The chart restarts the pods of a component
    /// when one of these sections changes.
    pub fn sections(self) -> impl Iterator<Item = &'static str> {
        let reads = move |readers: &[Self]| self == Operator || readers.contains(&self);
        let sections = SECTIONS.iter().filter(move |(_, readers)| reads(readers));
        sections.map(|(section, _)| *section)
    }
}

/// Returns the digest of the sections of a document that a component reads.
pub(crate) fn digest(document: &Map<String, Value>, component: Component) -> String {
    let mut sha = Sha256::new();
    for section in component.sections() {
        let value = document.get(section).unwrap_or(&Value::Null);
        // The names of fields are in the order of the alphabet.
        sha.update(format!("{section}={value}\n"));
    }
    let digest = sha.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
