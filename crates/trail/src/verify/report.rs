//! By what a record is judged, and what is said of it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::super::head::{Head, Medium};
use super::super::keys::Trust;
use super::super::writer::Writer;

/// How many records a writer has on their way to the cluster at once, at most. When it is killed,
/// some of these may have arrived and others not; no earlier one is missing.
pub const IN_FLIGHT: u64 = 64;

/// How far apart a signed record and what follows it unsigned may be: twice of what writers keep to.
pub(super) const UNSIGNED: SignedDuration = SignedDuration::from_secs(2);
/// How far apart the records may be that come after the last checkpoint: writers publish one within
/// [`PUBLISHED_WITHIN`] of the first of them.
pub(super) const UNCLAIMED: SignedDuration = SignedDuration::from_secs(60);
/// The longest that a writer may wait until it publishes a checkpoint.
pub const PUBLISHED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// By what a record is judged.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Whose signatures count.
    pub trust: Trust,
    /// What may be gone from the cluster: records older than this.
    pub objects_kept_since: Option<Timestamp>,
    /// What may be gone from the logs: records older than this.
    pub logs_kept_since: Option<Timestamp>,
    /// What need not be there in the place of the cluster's events: records of a chain that come after one that is
    /// signed and not from before this. So a part of a trail is judged, between two instants.
    pub objects_until: Option<Timestamp>,
}

impl Terms {
    pub(super) fn kept_since(&self, medium: Medium) -> Option<Timestamp> {
        match medium {
            Medium::Log => self.logs_kept_since,
            Medium::Objects => self.objects_kept_since,
        }
    }
}

/// Where something was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// The file, or the kind and name of the object.
    pub source: String,
    /// Line of the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl std::fmt::Display for Location {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}", self.source),
            None => write!(formatter, "{}", self.source),
        }
    }
}

/// What is wrong.
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
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
    strum::EnumMessage,
)]
pub enum Fault {
    /// Not a record at all.
    Unreadable,
    /// A record does not have the digest that it states.
    Altered,
    /// Name or labels of an object are not those of its record.
    Relabelled,
    /// The first record of a chain is not signed: no process of oz began it.
    Unborn,
    /// A signature does not belong to what it stands on.
    BadSignature,
    /// It is signed by a key that is neither pinned nor vouched for: a key that was lost, or one of
    /// somebody's own.
    UnknownKey,
    /// A record is not there.
    Missing,
    /// The end of a chain is not there.
    Truncated,
    /// A checkpoint is not there, or an older one is in its place.
    Unclaimed,
    /// A record is not signed where its writer would have signed it.
    Unsigned,
    /// A record is there twice.
    Duplicate,
    /// Two records claim one place in a chain.
    Forked,
    /// A record is not where it was written.
    Moved,
    /// A record does not follow the one before it.
    Unlinked,
    /// A record is not the one that was signed.
    NotAsSigned,
}

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The chain, if that much could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// The place in the chain: the first that is bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// What is wrong.
    pub fault: Fault,
    /// Where it shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Location>,
    /// The same for people.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.fault)?;
        if let Some(writer) = &self.writer {
            write!(formatter, " in {writer}")?;
        }
        if let Some(seq) = self.seq {
            write!(formatter, " at {seq}")?;
        }
        if let Some(place) = &self.place {
            write!(formatter, " ({place})")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// A key that signed something, and of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownKey {
    /// Its name, as signatures have it.
    pub key: String,
    /// How many records it signed, wherever they were read.
    pub records: u64,
    /// How many checkpoints.
    pub checkpoints: u64,
    /// Instants of the first and last of them.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
}

/// The keys of which nothing is known, by name.
#[derive(Default)]
pub(super) struct UnknownKeys(BTreeMap<String, UnknownKey>);

impl UnknownKeys {
    /// A record or a checkpoint of this instant is signed by this key.
    pub(super) fn signed(&mut self, key: &str, at: Timestamp, is_checkpoint: bool) {
        let known = self.0.entry(key.to_owned()).or_insert_with(|| UnknownKey {
            key: key.to_owned(),
            records: 0,
            checkpoints: 0,
            first: at,
            last: at,
        });
        match is_checkpoint {
            true => known.checkpoints += 1,
            false => known.records += 1,
        }
        known.first = known.first.min(at);
        known.last = known.last.max(at);
    }

    pub(super) fn into_list(self) -> Vec<UnknownKey> {
        self.0.into_values().collect()
    }
}

/// A caller of the webhook that was not known to be an API server. What is recorded of it may be forged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnprovenCaller {
    /// Its address.
    pub peer: String,
    /// How often it said that something happened, according to its records.
    pub records: u64,
    /// Instants of the first and last of them.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
}

impl std::fmt::Display for UnprovenCaller {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            peer,
            records,
            first,
            last,
        } = self;
        write!(
            formatter,
            "{records} records are of unproven caller {peer}, from {first} to {last}: what they say may be forged \
             unless {peer} is the address of an API server"
        )
    }
}

/// The unproven callers, by address.
#[derive(Default)]
pub(super) struct UnprovenCallers(BTreeMap<String, UnprovenCaller>);

impl UnprovenCallers {
    /// A record of this instant is of this caller, and stands for so many.
    pub(super) fn said(&mut self, peer: &str, many: u64, at: Timestamp) {
        let caller = self.0.entry(peer.to_owned());
        let caller = caller.or_insert_with(|| UnprovenCaller {
            peer: peer.to_owned(),
            records: 0,
            first: at,
            last: at,
        });
        caller.records = caller.records.saturating_add(many);
        caller.first = caller.first.min(at);
        caller.last = caller.last.max(at);
    }

    pub(super) fn into_list(self) -> Vec<UnprovenCaller> {
        self.0.into_values().collect()
    }
}

/// What is known of one chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// Whose.
    pub writer: Writer,
    /// How many different records were read.
    pub records: u64,
    /// The first and last place read; 0 if none was.
    pub first: u64,
    /// See `first`.
    pub last: u64,
    /// How far the chain is proven complete by a checkpoint.
    pub complete_through: u64,
    /// How many records after that are chained and not yet vouched for by any signature.
    pub unsigned: u64,
}

/// What came of verifying.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every chain, by writer.
    pub chains: Vec<ChainReport>,
    /// What is wrong, by chain and place. Empty if the record is whole.
    pub problems: Vec<Problem>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
    /// Callers of the webhook that were not known to be API servers, and what is recorded of what they said.
    #[serde(rename = "unprovenCallers")]
    pub unproven_callers: Vec<UnprovenCaller>,
    /// The keys by whose signatures nothing could be checked.
    #[serde(rename = "unknownKeys")]
    pub unknown_keys: Vec<UnknownKey>,
}

/// What verifying comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
pub enum Verdict {
    /// There are records, and none is missing or changed.
    Whole,
    /// Something is wrong.
    NotWhole,
    /// Nothing else is wrong than that signatures are by keys of which nothing is known. Whether a key was
    /// lost or somebody made these records up cannot be told without its public part.
    Unchecked,
    /// There was no record to judge. That proves nothing: a trail that was taken away as a whole,
    /// checkpoints and all, looks like one that never began.
    Nothing,
}

impl Report {
    /// What it comes to. If `strict`, records that no signature vouches for are wrong.
    #[must_use]
    pub fn verdict(&self, strict: bool) -> Verdict {
        let mut faults = self.problems.iter().map(|problem| problem.fault);
        if faults.any(|fault| fault != Fault::UnknownKey) {
            Verdict::NotWhole
        } else if !self.is_whole() {
            Verdict::Unchecked
        } else if strict && self.unsigned() > 0 {
            Verdict::NotWhole
        } else if self.records() == 0 {
            Verdict::Nothing
        } else {
            Verdict::Whole
        }
    }

    /// Whether nothing is wrong. It may be that there was nothing at all: see [`Report::verdict`].
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }

    /// How many records were read.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.chains.iter().map(|chain| chain.records).sum()
    }

    /// How many records no signature vouches for yet.
    #[must_use]
    pub fn unsigned(&self) -> u64 {
        self.chains.iter().map(|chain| chain.unsigned).sum()
    }
}

/// A statement that a chain came this far.
pub(super) struct Claim {
    pub(super) head: Head,
    pub(super) place: Location,
    /// Whether it is by the first record of another chain, which found it in the cluster.
    pub(super) mentioned: bool,
}
