//! How far a chain has come, as checkpoints and the first records of other chains state it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::writer::Writer;

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
