//! The chain of one writer: each record carries the digest of the preceding record, so all later records show that a
//! record was changed, left out, moved or inserted. A process begins a separate chain at each start: two processes that
//! write at once cannot share a chain.

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

/// The purpose of the digest of a record.
pub(super) const RECORD: &str = "oz-audit-record/v1";
/// The purpose of the signature of a record.
pub(super) const SIGNED_RECORD: &str = "oz-audit-record-signature/v1\n";

/// The age difference to the last signed record, in either direction, from which a record is signed: an unsigned record
/// follows closely on a signed one.
const SIGN_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// Detail: the time of the decision, on a record that was written after a later one and has the time of that one.
pub const DECIDED_AT: &str = "decidedAt";
/// The maximum time by which a record may precede the record before it and still take its time. A summary of a minute
/// is that late; a clock that was set back differs by more.
const BEHIND: SignedDuration = SignedDuration::from_secs(65);

/// The place of a record in the chain of its writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Writer of the record.
    #[serde(flatten)]
    pub writer: Writer,
    /// Sequence number in the chain, from 1.
    #[schemars(with = "i64")]
    pub seq: u64,
    /// Digest of the previous record; empty for the first.
    #[serde(default)]
    pub prev: String,
    /// Time of the previous record, which shows whether a missing record is older than the retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub prev_time: Option<Timestamp>,
    /// `sha256:` and the digest of this record, without this field and the signature.
    #[serde(default)]
    pub digest: String,
    /// KEY:SIGNATURE of the digest. On the first record of a chain and on some of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// A record in its chain: a line of the log, and the spec of an AuditEvent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The position in the chain.
    #[serde(flatten)]
    pub link: Link,
    /// The content.
    #[serde(flatten)]
    pub record: Record,
}

impl Entry {
    /// Returns the entry as a value, which is written and digested.
    #[must_use]
    pub fn value(&self) -> Value {
        // Strings, numbers and timestamps always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the value that was written: with the former name of a renamed action, if the digest of the entry covers
    /// that name.
    #[must_use]
    pub fn written_value(&self) -> Value {
        let value = self.value();
        if let Some(name) = self.record.action.former_name() {
            let mut former = value.clone();
            former["action"] = Value::from(name);
            if Self::digest_of(&former) == self.link.digest {
                return former;
            }
        }
        value
    }

    /// Checks the digest and the signature of an entry. A trusted key of the writer must have signed it.
    ///
    /// # Errors
    /// The reason for which the signature is not accepted.
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

    /// Returns the digest that the entry must carry.
    #[must_use]
    pub fn digest_of(value: &Value) -> String {
        digest_without(RECORD, value, &["digest", "signature"])
    }

    /// Returns the head of the chain that ends with this entry.
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

/// The state of a chain in the process that writes it.
#[derive(Clone, Debug)]
pub struct Chain {
    writer: Writer,
    seq: u64,
    digest: String,
    time: Option<Timestamp>,
    signed_at: Option<Timestamp>,
}

impl Chain {
    /// Begins a chain with its first record. The record is signed and names the chains that are known at that time, so
    /// that none of these can disappear as a whole.
    #[must_use]
    pub fn begin(writer: Writer, now: Timestamp, known: &[Head], key: &AuditKey) -> (Self, Entry) {
        Self::begin_with(writer, now, known, &[], key)
    }

    /// Begins a chain like [`Self::begin`]; its first record has further details.
    #[must_use]
    pub fn begin_with(
        writer: Writer,
        now: Timestamp,
        known: &[Head],
        details: &[(&str, String)],
        key: &AuditKey,
    ) -> (Self, Entry) {
        let mut record = Record::about(
            now,
            Action::WriterStarted,
            Decision::Note,
            &writer.to_string(),
            "Started",
            format!("{} of {} writes", writer.replica, writer.component),
        )
        .detail("publicKey", key.public());
        for (name, value) in details {
            record = record.detail(name, value.clone());
        }
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

    /// Appends `record` and returns its entry; signs it if a signature is due.
    pub fn append(&mut self, record: Record, key: &AuditKey) -> Entry {
        let mut record = record;
        // Rounded as `bounded` rounds it, for the comparison with a rounded time.
        record.time = record.time.round(Unit::Microsecond).unwrap_or(record.time);
        self.seq += 1;
        // AuditEvents are read, kept and deleted by time, so the order of a chain must be the order of time.
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
        // The signature of such a record is its only proof: one allows records to be missing, the other seals evidence.
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
        // A clock that is set back must not make later records look older than they are.
        self.time = Some(self.time.map_or(time, |before| before.max(time)));
        entry
    }

    /// Returns the writer of the chain.
    #[must_use]
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Returns the number of records in the chain.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.seq
    }

    /// Checks whether the chain has no record; always false, since a chain begins with a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seq == 0
    }
}
