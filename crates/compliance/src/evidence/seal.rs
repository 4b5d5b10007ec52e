//! Sealing: the user who creates a bundle does not hold the audit key, and requests by a ConfigMap that the operator
//! records the digest of the sums of the bundle. The record is signed, and becomes a part of the bundle.

use jiff::Timestamp;
use oz_api::names;
use oz_trail::{Action, Decision, Entry, KeyError, Record, Trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The detail with the sealed digest.
const SUMS: &str = "sums";
/// The detail with the requester.
const BY: &str = "by";
/// The maximum length of the name of the requester, in characters.
const LONGEST_NAME: usize = 256;

/// A request for a seal, as one entry of a ConfigMap: its key is the digest in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealOrder {
    /// `sha256:` and the digest of the sums of the bundle.
    pub sums: String,
    /// The requester, as stated in the order; only the audit log of Kubernetes proves it.
    #[serde(default)]
    pub by: String,
}

/// The reason for which an entry is not an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The text is no order as JSON.
    #[error("{error}")]
    NotJson {
        /// Error of the parser.
        error: String,
    },
    /// The key is not the digest in the order.
    #[error("its key must be the digest that it names, 64 digits in hexadecimal")]
    Key,
}

impl SealOrder {
    /// Returns the key of the order in the ConfigMap.
    #[must_use]
    pub fn key(&self) -> &str {
        self.sums.trim_start_matches("sha256:")
    }

    /// Parses an order from an entry of the ConfigMap.
    ///
    /// # Errors
    /// The reason for which the entry is not an order.
    pub fn read(key: &str, text: &str) -> Result<Self, OrderError> {
        let order: Self = serde_json::from_str(text).map_err(|error| OrderError::NotJson {
            error: error.to_string(),
        })?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_digest = order
            .sums
            .strip_prefix("sha256:")
            .is_some_and(|digest| digest.len() == 64 && digest.bytes().all(hex));
        if !is_digest || order.key() != key {
            return Err(OrderError::Key);
        }
        Ok(order)
    }

    /// Returns the record that seals it. Orders for the same sums have records with the same id.
    #[must_use]
    pub fn record(&self, now: Timestamp) -> Record {
        let by: String = match self.by.as_str() {
            "" => "somebody".to_owned(),
            by => by.chars().take(LONGEST_NAME).collect(),
        };
        let message = format!(
            "The evidence with the sums {} is sealed, as {by} requests",
            self.sums
        );
        let (action, note) = (Action::EvidenceSealed, Decision::Note);
        Record::about(now, action, note, &self.sums, "Requested", message)
            .detail(SUMS, self.sums.clone())
            .detail(BY, by)
    }
}

/// A signature of the audit key over the sums of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seal {
    /// The time of the signature.
    pub at: Timestamp,
    /// The requester, as stated in the order.
    pub by: String,
    /// `sha256:` and the digest of the sums.
    pub sums: String,
    /// The digest of the record, by which it is found in the trail.
    pub record: String,
}

/// The reason for which a seal is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The signature is missing or not valid.
    #[error("{0}")]
    Signature(#[from] KeyError),
    /// The record has another purpose.
    #[error("the audit record is not a seal of evidence by the operator")]
    Other,
}

/// Returns the seal that a record of the trail contains.
///
/// # Errors
/// The reason for which the record is not a seal.
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
