//! Checkpoints: the signed statement of a writer about the head of its chain, stored apart from the records. An
//! attacker who removes the end of a chain has to remove it here too, and cannot sign.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical::canonical;
use super::head::Head;
use super::keys::{AuditKey, KeyError, Trust};

const CHECKPOINT: &str = "oz-audit-checkpoint/v1\n";

/// A [`Head`] with a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The head that the checkpoint states.
    #[serde(flatten)]
    pub head: Head,
    /// The signature, `KEY:SIGNATURE`.
    pub signature: String,
}

impl Checkpoint {
    /// Signs a head.
    #[must_use]
    pub fn sign(head: Head, key: &AuditKey) -> Self {
        let signature = key.sign(CHECKPOINT, &canonical(&value(&head)));
        Self { head, signature }
    }

    /// Checks the signature.
    ///
    /// # Errors
    /// The reason for which the signature is not accepted.
    pub fn check(&self, trust: &Trust) -> Result<(), KeyError> {
        let writer = &self.head.writer.component;
        let content = canonical(&value(&self.head));
        trust.check(writer, CHECKPOINT, &content, &self.signature)
    }

    /// Returns the checkpoint as a line of the log: an object with the one field `checkpoint`.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::json!({ "checkpoint": self }).to_string()
    }

    /// Returns the key of the newest checkpoint of a replica in the ConfigMap.
    #[must_use]
    pub fn slot(&self) -> String {
        format!(
            "{}.{}",
            self.head.writer.component, self.head.writer.replica
        )
    }
}

fn value(head: &Head) -> Value {
    serde_json::to_value(head).unwrap_or_default()
}
