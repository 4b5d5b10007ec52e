//! Sealing: whoever makes a bundle does not hold the audit key, and asks the operator by a ConfigMap to put the digest
//! of the bundle's sums on record. The record is signed, and a part of the bundle from then on.

use jiff::Timestamp;
use oz_api::names;
use oz_trail::{Action, Decision, Entry, KeyError, Record, Trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The detail that says what is sealed.
const SUMS: &str = "sums";
/// The detail that says who asked.
const BY: &str = "by";
/// The longest name of somebody who asks, in characters.
const LONGEST_NAME: usize = 256;

/// What somebody asks for, as one entry of a ConfigMap: its key is the digest in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealOrder {
    /// `sha256:` and the digest of the bundle's sums.
    pub sums: String,
    /// Who asks, as they say themselves; Kubernetes' own audit log knows it for certain.
    #[serde(default)]
    pub by: String,
}

impl SealOrder {
    /// Under which key the ConfigMap has it.
    #[must_use]
    pub fn key(&self) -> &str {
        self.sums.trim_start_matches("sha256:")
    }

    /// The order that an entry of the ConfigMap is.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(key: &str, text: &str) -> Result<Self, String> {
        let order: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_digest = order
            .sums
            .strip_prefix("sha256:")
            .is_some_and(|digest| digest.len() == 64 && digest.bytes().all(hex));
        if !is_digest || order.key() != key {
            return Err(
                "its key must be the digest that it names, 64 digits in hexadecimal".to_owned(),
            );
        }
        Ok(order)
    }

    /// The record that seals it. The same sums are the same fact.
    #[must_use]
    pub fn record(&self, now: Timestamp) -> Record {
        let by: String = match self.by.as_str() {
            "" => "somebody".to_owned(),
            by => by.chars().take(LONGEST_NAME).collect(),
        };
        let message = format!(
            "Evidence with the sums {} is sealed, as {by} asks",
            self.sums
        );
        let (action, note) = (Action::EvidenceSealed, Decision::Note);
        Record::about(now, action, note, &self.sums, "Asked", message)
            .detail(SUMS, self.sums.clone())
            .detail(BY, by)
    }
}

/// That the audit key signed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seal {
    /// When.
    pub at: Timestamp,
    /// Who asked, as they said themselves.
    pub by: String,
    /// `sha256:` and the digest of the sums.
    pub sums: String,
    /// The record's own digest, by which it is found in the trail.
    pub record: String,
}

/// Why a seal proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No good signature.
    #[error("{0}")]
    Signature(#[from] KeyError),
    /// A record of something else.
    #[error("the record is not one by which the operator seals evidence")]
    Other,
}

/// The seal that a record of the trail is.
///
/// # Errors
/// Why it is none.
pub fn sealed(value: &Value, trust: &Trust) -> Result<Seal, SealError> {
    let entry = Entry::check_signature(value, trust)?;
    let record = entry.record;
    let by_operator = entry.link.writer.component == names::OPERATOR;
    let sums = record.details.get(SUMS).cloned();
    match sums {
        Some(sums) if by_operator && record.action == Action::EvidenceSealed => Ok(Seal {
            at: record.time,
            by: record.details.get(BY).cloned().unwrap_or_default(),
            sums,
            record: entry.link.digest,
        }),
        _ => Err(SealError::Other),
    }
}
