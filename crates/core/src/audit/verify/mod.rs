//! Whether a record is whole: what was read back, against the chains, the signatures and what the
//! checkpoints say should be there. Finds what was changed, left out, doubled, moved or put in
//! between, and where.

mod evidence;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use evidence::Evidence;

use super::chain::{SIGNED_RECORD, Writer};
use super::checkpoint::{Checkpoint, Head, Medium};
use super::keys::Trust;
use evidence::Shortened;
use walk::Walk;

/// How many records a writer has on their way to the cluster at once, at most. When it is killed,
/// some of these may have arrived and others not; no earlier one is missing.
pub const IN_FLIGHT: u64 = 64;

/// How far apart a signed record and what follows it unsigned may be: twice of what writers keep to.
const UNSIGNED: SignedDuration = SignedDuration::from_secs(2);
/// How far apart the records may be that come after the last checkpoint: writers publish one within
/// [`PUBLISHED_WITHIN`] of the first of them.
const UNCLAIMED: SignedDuration = SignedDuration::from_secs(60);
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
}

impl Terms {
    fn kept_since(&self, medium: Medium) -> Option<Timestamp> {
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
    /// A signature does not belong to what it stands on, or is by a key that is not believed.
    BadSignature,
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
}

/// What verifying comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
pub enum Verdict {
    /// There are records, and none is missing or changed.
    Whole,
    /// Something is wrong.
    NotWhole,
    /// There was no record to judge. That proves nothing: a trail that was taken away as a whole,
    /// checkpoints and all, looks like one that never began.
    Nothing,
}

impl Report {
    /// What it comes to. If `strict`, records that no signature vouches for are wrong.
    #[must_use]
    pub fn verdict(&self, strict: bool) -> Verdict {
        if !self.is_whole() || strict && self.unsigned() > 0 {
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
struct Claim {
    head: Head,
    place: Location,
    /// Whether it is by the first record of another chain, which found it in the cluster.
    mentioned: bool,
}

/// Verifies what was read.
#[must_use]
pub fn verify(evidence: Evidence, terms: &Terms) -> Report {
    let Evidence {
        items,
        checkpoints,
        media,
        mut problems,
        mut notes,
        keys,
        shortened,
    } = evidence;
    // Whoever pinned the first key has what is needed to believe those that came after it.
    let mut terms = terms.clone();
    terms.trust.extend(&keys);
    shorten(&mut terms, shortened, &mut notes);
    let terms = &terms;
    // Where it was taken away as a whole.
    let no_checkpoint = media.contains(&Medium::Objects) && checkpoints.is_empty();
    let mut claims = claims(checkpoints, &terms.trust, &mut problems);
    let mut chains: BTreeMap<Writer, Vec<evidence::Item>> = BTreeMap::new();
    for item in items {
        for (name, value) in &item.mentions {
            if let Some(head) = Head::mentioned(name, value) {
                let place = item.place.clone();
                claims.entry(head.writer.clone()).or_default().push(Claim {
                    head,
                    place,
                    mentioned: true,
                });
            }
        }
        chains
            .entry(item.link.writer.clone())
            .or_default()
            .push(item);
    }
    // A log belongs to a replica; those of others need not have been given.
    let logged: BTreeSet<(String, String)> = chains
        .iter()
        .filter(|(_, items)| items.iter().any(|item| item.medium == Medium::Log))
        .map(|(writer, _)| (writer.component.clone(), writer.replica.clone()))
        .collect();
    let writers: BTreeSet<Writer> = chains.keys().chain(claims.keys()).cloned().collect();
    let mut report = Report {
        notes,
        ..Report::default()
    };
    for writer in writers {
        let of = (writer.component.clone(), writer.replica.clone());
        let judged = media
            .iter()
            .filter(|medium| **medium == Medium::Objects || logged.contains(&of));
        let walk = Walk {
            terms,
            items: chains.remove(&writer).unwrap_or_default(),
            claims: claims.remove(&writer).unwrap_or_default(),
            media: judged.copied().collect(),
            no_checkpoint,
            writer,
            problems: &mut problems,
            notes: &mut report.notes,
        };
        report.chains.extend(walk.run());
    }
    problems.sort();
    problems.dedup();
    report.problems = problems;
    report
}

/// What was deleted from the cluster may be gone that a signed record says was to go. A signature that
/// does not hold is a fault of its record's own.
fn shorten(terms: &mut Terms, mut shortened: Vec<Shortened>, notes: &mut Vec<String>) {
    shortened.retain(|one| {
        let trust = &terms.trust;
        let checked = trust.check(SIGNED_RECORD, one.digest.as_bytes(), &one.signature);
        checked.is_ok()
    });
    let last = shortened
        .into_iter()
        .max_by_key(|one| (one.before, one.time));
    let Some(last) = last else { return };
    notes.push(format!("shortened at {}: {}", last.time, last.message));
    terms.objects_kept_since = terms.objects_kept_since.max(Some(last.before));
}

/// What the checkpoints state of each writer's chain, as far as they are signed by whom is trusted.
fn claims(
    checkpoints: Vec<(Location, Checkpoint)>,
    trust: &Trust,
    problems: &mut Vec<Problem>,
) -> BTreeMap<Writer, Vec<Claim>> {
    let mut claims: BTreeMap<Writer, Vec<Claim>> = BTreeMap::new();
    for (place, checkpoint) in checkpoints {
        let head = checkpoint.head.clone();
        match checkpoint.check(trust) {
            Ok(()) => claims.entry(head.writer.clone()).or_default().push(Claim {
                head,
                place,
                mentioned: false,
            }),
            Err(error) => problems.push(Problem {
                writer: Some(head.writer),
                seq: Some(head.seq),
                fault: Fault::BadSignature,
                place: Some(place),
                message: format!("a checkpoint proves nothing: {error}"),
            }),
        }
    }
    claims
}
