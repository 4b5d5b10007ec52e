//! Checkpoints: a writer's signed statement of how far its chain has come, kept apart from the
//! records. Whoever takes away the end of a chain has to take it away here too, and cannot sign.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical::canonical;
use super::chain::{Entry, Writer};
use super::keys::{AuditKey, KeyError, Trust};

const CHECKPOINT: &str = "oz-audit-checkpoint/v1\n";

/// Where records are kept.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Medium {
    /// Lines of JSON, on standard output or in a file.
    Log,
    /// AuditEvents in the cluster.
    Objects,
}

/// How far a chain has come, without a gap, in each of some media.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// Whose chain.
    #[serde(flatten)]
    pub writer: Writer,
    /// The last record.
    pub seq: u64,
    /// Its digest.
    pub digest: String,
    /// Its time; no record before it is younger.
    pub time: Timestamp,
    /// Where all records up to this one are.
    pub media: Vec<Medium>,
}

const DETAIL: &str = "after/";

impl Head {
    /// The head of the chain that ends with `entry`.
    #[must_use]
    pub fn of(entry: &Entry, media: &[Medium]) -> Self {
        let time = entry.record.time;
        Self {
            writer: entry.link.writer.clone(),
            seq: entry.link.seq,
            digest: entry.link.digest.clone(),
            time: entry.link.prev_time.map_or(time, |before| before.max(time)),
            media: media.to_vec(),
        }
    }

    /// Under which name the first record of another chain mentions this one.
    pub(super) fn detail_name(&self) -> String {
        format!("{DETAIL}{}", self.writer)
    }

    /// What it says of it.
    pub(super) fn detail_value(&self) -> String {
        let media: Vec<String> = self.media.iter().map(ToString::to_string).collect();
        format!(
            "{} {} {} {}",
            self.seq,
            self.digest,
            self.time,
            media.join(",")
        )
    }

    /// The head that a detail of a first record mentions.
    pub(super) fn mentioned(name: &str, value: &str) -> Option<Self> {
        let mut writer = name.strip_prefix(DETAIL)?.splitn(3, '/');
        let writer = Writer {
            component: writer.next()?.to_owned(),
            replica: writer.next()?.to_owned(),
            chain: writer.next()?.to_owned(),
        };
        let mut parts = value.split(' ');
        Some(Self {
            writer,
            seq: parts.next()?.parse().ok()?,
            digest: parts.next()?.to_owned(),
            time: parts.next()?.parse().ok()?,
            media: parts
                .next()?
                .split(',')
                .filter_map(|medium| medium.parse().ok())
                .collect(),
        })
    }
}

/// A [`Head`] with a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// What is stated.
    #[serde(flatten)]
    pub head: Head,
    /// KEY:SIGNATURE.
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
    /// Why it proves nothing.
    pub fn check(&self, trust: &Trust) -> Result<(), KeyError> {
        trust.check(CHECKPOINT, &canonical(&value(&self.head)), &self.signature)
    }

    /// The checkpoint as a line of the log: an object with the one field `checkpoint`.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::json!({ "checkpoint": self }).to_string()
    }

    /// Under which key a ConfigMap keeps the newest checkpoint of a replica.
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
