//! The writer of a chain.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The writer of a chain.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Writer {
    /// Component that writes the chain, such as `oz-operator`.
    pub component: String,
    /// Replica of the component.
    pub replica: String,
    /// Start of the replica; later starts sort after earlier ones.
    pub chain: String,
}

impl std::fmt::Display for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}/{}/{}",
            self.component, self.replica, self.chain
        )
    }
}

impl Writer {
    /// Creates the writer of a chain that begins at `now`. `nonce` distinguishes two writers of one instant.
    #[must_use]
    pub fn new(component: &str, replica: &str, now: Timestamp, nonce: u32) -> Self {
        Self {
            component: component.to_owned(),
            replica: replica.to_owned(),
            chain: format!("{}-{nonce:08x}", now.strftime("%Y%m%dT%H%M%S")),
        }
    }
}
