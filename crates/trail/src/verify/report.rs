//! The terms of verification, and its report.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::super::head::{Head, Medium};
use super::super::keys::Trust;
use super::super::writer::Writer;

/// The maximum number of records that a writer sends to the cluster at one time. When the writer is killed, some of
/// these may have arrived and others not; no earlier record is missing.
pub const IN_FLIGHT: u64 = 64;

/// The maximum time between a signed record and the unsigned records after it: twice the limit that writers apply.
pub(super) const UNSIGNED: SignedDuration = SignedDuration::from_secs(2);
/// The maximum time between the records after the last checkpoint: writers publish a checkpoint within
/// [`PUBLISHED_WITHIN`] of the first of them.
pub(super) const UNCLAIMED: SignedDuration = SignedDuration::from_secs(60);
/// The maximum time until a writer publishes a checkpoint.
pub const PUBLISHED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// The terms by which a trail is verified.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The trusted keys.
    pub trust: Trust,
    /// The time before which records may be missing from the cluster.
    pub objects_kept_since: Option<Timestamp>,
    /// The time before which records may be missing from the logs.
    pub logs_kept_since: Option<Timestamp>,
    /// The time from which the events of the cluster may be missing: the records of a chain after a signed record that
    /// is not older than this. With it, a part of a trail between two instants is verified.
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

/// The location of an item that was read.
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

/// The kinds of faults.
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
    /// The input is not a record.
    Unreadable,
    /// A record does not have the digest that it states.
    Altered,
    /// The name or the labels of an object are not those of its record.
    Relabelled,
    /// The first record of a chain is not signed: no process of oz started the chain.
    ChainStartUnsigned,
    /// A signature does not match the content that it signs.
    BadSignature,
    /// The signing key is neither pinned nor vouched for: it was lost, or belongs to a third party.
    UnknownKey,
    /// A record is missing.
    Missing,
    /// The end of a chain is missing.
    Truncated,
    /// A checkpoint is missing, or an older one is in its place.
    CheckpointMissing,
    /// A record has no signature, but its writer would have signed it.
    Unsigned,
    /// A record exists twice.
    Duplicate,
    /// Two records have the same position in a chain.
    Forked,
    /// A record is not in the place in which it was written.
    Moved,
    /// A record does not link to the record before it.
    Unlinked,
    /// A record differs from the record that was signed.
    SignedDigestMismatch,
}

/// A fault and its location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The chain, if its writer could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// The position in the chain: the first with the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The kind of fault.
    pub fault: Fault,
    /// The location at which the fault was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Location>,
    /// The description of the fault for users.
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

/// A key that signed an item and is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownKey {
    /// The name of the key, as in signatures.
    pub key: String,
    /// The number of records that it signed, at all locations.
    pub records: u64,
    /// The number of checkpoints that it signed.
    pub checkpoints: u64,
    /// The instants of the first and the last of them.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
}

/// The unknown keys, by name.
#[derive(Default)]
pub(super) struct UnknownKeys(BTreeMap<String, UnknownKey>);

impl UnknownKeys {
    /// Counts a record or a checkpoint of this instant that this key signed.
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

/// A caller of the webhook that was not known to be an API server. The records of its statements may be forged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnprovenCaller {
    /// The address of the caller.
    pub peer: String,
    /// The number of events that it stated, according to its records.
    pub records: u64,
    /// The instants of the first and the last of them.
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
            "{records} audit records are of unproven caller {peer}, from {first} to {last}: their \
             content may be forged unless {peer} is the address of an API server"
        )
    }
}

/// The unproven callers, by address.
#[derive(Default)]
pub(super) struct UnprovenCallers(BTreeMap<String, UnprovenCaller>);

impl UnprovenCallers {
    /// Counts a record of this instant, which stands for `many` statements of this caller.
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

/// The results for one chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// The writer of the chain.
    pub writer: Writer,
    /// The number of different records that were read.
    pub records: u64,
    /// The first and the last position that were read; 0 if no record was read.
    pub first: u64,
    /// See `first`.
    pub last: u64,
    /// The position up to which a checkpoint proves the chain complete.
    pub complete_through: u64,
    /// The number of records after that position that are chained and not covered by a signature yet.
    pub unsigned: u64,
}

/// The report of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// All chains, by writer.
    pub chains: Vec<ChainReport>,
    /// The faults, by chain and position. Empty if the trail is whole.
    pub problems: Vec<Problem>,
    /// Further facts that are not faults.
    pub notes: Vec<String>,
    /// The callers of the webhook that were not known to be API servers, and the records of their statements.
    #[serde(rename = "unprovenCallers")]
    pub unproven_callers: Vec<UnprovenCaller>,
    /// The unknown keys. Their signatures could not be checked.
    #[serde(rename = "unknownKeys")]
    pub unknown_keys: Vec<UnknownKey>,
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
pub enum Verdict {
    /// There are records, and no record is missing or changed.
    Valid,
    /// There is a fault.
    Invalid,
    /// The only faults are signatures by unknown keys. Without the public part of a key it is not decidable whether the
    /// key was lost or an attacker forged these records.
    Unchecked,
    /// There was no record to verify. This proves nothing: a trail that was removed as a whole, with its checkpoints,
    /// looks like one that never began.
    Empty,
}

impl Report {
    /// Returns the verdict. If `strict`, records that no signature covers are a fault.
    #[must_use]
    pub fn verdict(&self, strict: bool) -> Verdict {
        let mut faults = self.problems.iter().map(|problem| problem.fault);
        if faults.any(|fault| fault != Fault::UnknownKey) {
            Verdict::Invalid
        } else if !self.is_whole() {
            Verdict::Unchecked
        } else if strict && self.unsigned() > 0 {
            Verdict::Invalid
        } else if self.records() == 0 {
            Verdict::Empty
        } else {
            Verdict::Valid
        }
    }

    /// Checks whether there is no fault. It is possible that there was no record: see [`Report::verdict`].
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the number of records that were read.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.chains.iter().map(|chain| chain.records).sum()
    }

    /// Returns the number of records that no signature covers yet.
    #[must_use]
    pub fn unsigned(&self) -> u64 {
        self.chains.iter().map(|chain| chain.unsigned).sum()
    }
}

/// A statement about the head of a chain.
pub(super) struct Claim {
    pub(super) head: Head,
    pub(super) place: Location,
    /// The first record of another chain states it; that writer found it in the cluster.
    pub(super) mentioned: bool,
}
