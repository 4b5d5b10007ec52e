//! The head of a chain, as checkpoints and the first records of other chains state it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::writer::Writer;

/// A storage medium of records.
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

/// The last record of a chain up to which there is no gap, and the media to which this applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The writer of the chain.
    #[serde(flatten)]
    pub writer: Writer,
    /// The position of the last record.
    pub seq: u64,
    /// The digest of the last record.
    pub digest: String,
    /// The time of the last record; no earlier record is younger.
    pub time: Timestamp,
    /// The media that contain all records up to this one.
    pub media: Vec<Medium>,
}

const DETAIL: &str = "after/";

impl Head {
    /// Returns the name of the detail with which the first record of another chain mentions this chain.
    pub(super) fn detail_name(&self) -> String {
        format!("{DETAIL}{}", self.writer)
    }

    /// Returns the value of this detail.
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

    /// Parses the head from a detail of a first record.
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
