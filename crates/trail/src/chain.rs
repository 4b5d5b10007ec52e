//! The chain of one writer: each record carries the digest of the one before it, so none can be
//! changed, left out, moved or put in between without all later ones showing it. A process begins
//! a chain of its own each time it starts: two that wrote at once could not share one.

use jiff::{SignedDuration, Timestamp, Unit};
use oz_api::schema::timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::head::{Head, Medium};
use super::keys::{AuditKey, KeyError, Trust};
use super::record::Record;
use super::writer::Writer;
use super::{Action, Decision, digest_without};

/// What the digest of a record is made for.
pub(super) const RECORD: &str = "oz-audit-record/v1";
/// What the signature of a record is made for.
pub(super) const SIGNED_RECORD: &str = "oz-audit-record-signature/v1\n";

/// A record is signed itself when the one that was signed last is this much older, or younger: what
/// is not signed follows closely on what is.
const SIGN_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// Detail: the time of the decision, on a record that was written after a later one and has the time of that one.
pub const DECIDED_AT: &str = "decidedAt";
/// The maximum time by which a record may precede the record before it and still take its time. A summary of a minute is that
/// late; a clock that was set back differs by more.
const BEHIND: SignedDuration = SignedDuration::from_secs(65);

/// What ties a record to the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Who wrote it.
    #[serde(flatten)]
    pub writer: Writer,
    /// Place in the chain, from 1.
    #[schemars(with = "i64")]
    pub seq: u64,
    /// Digest of the record before it; empty for the first.
    #[serde(default)]
    pub prev: String,
    /// Time of the record before it: what is missing can be told to be old enough to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub prev_time: Option<Timestamp>,
    /// `sha256:` and the digest of this record, without this field and the signature.
    #[serde(default)]
    pub digest: String,
    /// KEY:SIGNATURE of the digest, on the first record of a chain and on some of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// A record in its chain: a line of the log, and the spec of an AuditEvent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its place.
    #[serde(flatten)]
    pub link: Link,
    /// What it says.
    #[serde(flatten)]
    pub record: Record,
}

impl Entry {
    /// The entry as a value, which is what is written and digested.
    #[must_use]
    pub fn value(&self) -> Value {
        // Strings, numbers and timestamps always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether its digest is its own, and signed by whom is trusted.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check_signature(value: &Value, trust: &Trust) -> Result<Self, KeyError> {
        let entry: Self = serde_json::from_value(value.clone()).map_err(|_| KeyError::Malformed)?;
        let digest = Self::digest_of(value);
        let signature = entry.link.signature.as_deref().ok_or(KeyError::Malformed)?;
        let writer = &entry.link.writer.component;
        trust.check(writer, SIGNED_RECORD, digest.as_bytes(), signature)?;
        match digest == entry.link.digest {
            true => Ok(entry),
            false => Err(KeyError::Malformed),
        }
    }

    /// The digest that the entry must carry.
    #[must_use]
    pub fn digest_of(value: &Value) -> String {
        digest_without(RECORD, value, &["digest", "signature"])
    }

    /// The head of the chain that ends with it.
    #[must_use]
    pub fn head(&self, media: &[Medium]) -> Head {
        let time = self.record.time;
        Head {
            writer: self.link.writer.clone(),
            seq: self.link.seq,
            digest: self.link.digest.clone(),
            time: self.link.prev_time.map_or(time, |before| before.max(time)),
            media: media.to_vec(),
        }
    }
}

/// A chain as its writer holds it.
#[derive(Clone, Debug)]
pub struct Chain {
    writer: Writer,
    seq: u64,
    digest: String,
    time: Option<Timestamp>,
    signed_at: Option<Timestamp>,
}

impl Chain {
    /// Begins a chain, with its first record: signed, and naming the chains that were known then,
    /// so that none of those can vanish as a whole.
    #[must_use]
    pub fn begin(writer: Writer, now: Timestamp, known: &[Head], key: &AuditKey) -> (Self, Entry) {
        let mut record = Record::about(
            now,
            Action::WriterStarted,
            Decision::Note,
            &writer.to_string(),
            "Started",
            format!("{} of {} writes", writer.replica, writer.component),
        )
        .detail("publicKey", key.public());
        for head in known {
            record = record.detail(&head.detail_name(), head.detail_value());
        }
        let mut chain = Self {
            writer,
            seq: 0,
            digest: String::new(),
            time: None,
            signed_at: None,
        };
        let entry = chain.append(record, key);
        (chain, entry)
    }

    /// The next entry, with `record`; signed when it is time to.
    pub fn append(&mut self, record: Record, key: &AuditKey) -> Entry {
        let mut record = record;
        // As `bounded` rounds it, before it is compared with a rounded one.
        record.time = record.time.round(Unit::Microsecond).unwrap_or(record.time);
        self.seq += 1;
        // Events are read, kept and thrown away by time: within a chain that must be its order.
        if let Some(before) = self.time
            && before > record.time
            && before.duration_since(record.time) <= BEHIND
        {
            let decided = record.time.to_string();
            record = record.detail(DECIDED_AT, decided);
            record.time = before;
        }
        let record = record.bounded();
        let time = record.time;
        // What lets others be missing, and what seals evidence, is believed by its own signature.
        let due = matches!(
            record.action,
            Action::TrailShortened | Action::EvidenceSealed
        ) || self
            .signed_at
            .is_none_or(|at| time.duration_since(at).abs() >= SIGN_EVERY);
        let mut entry = Entry {
            link: Link {
                writer: self.writer.clone(),
                seq: self.seq,
                prev: std::mem::take(&mut self.digest),
                prev_time: self.time,
                digest: String::new(),
                signature: None,
            },
            record,
        };
        entry.link.digest = Entry::digest_of(&entry.value());
        if due {
            self.signed_at = Some(time);
            let digest = entry.link.digest.as_bytes();
            entry.link.signature = Some(key.sign(SIGNED_RECORD, digest));
        }
        self.digest.clone_from(&entry.link.digest);
        // A clock that steps back must not make what follows look older than it is.
        self.time = Some(self.time.map_or(time, |before| before.max(time)));
        entry
    }

    /// Who writes it.
    #[must_use]
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// How many records it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.seq
    }

    /// Whether nothing was written yet; never, since a chain begins with a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seq == 0
    }
}
