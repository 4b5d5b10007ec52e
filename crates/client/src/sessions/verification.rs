//! The comparison of stored recordings with the heads of their chains in the audit trail.

use std::fmt;

use oz_gating::recording::{self, Finding, Form, Head, SessionKey, Stored};
use oz_trail::Entry;
use serde::{Serialize, Serializer};

use super::error::SessionError;
use super::identities::Identities;
use super::source::{Source, unpacked};

/// A recording with an audit record, and the problems of its stored data.
#[derive(Serialize)]
pub struct Checked {
    /// NAMESPACE/REQUEST/SESSION.
    pub session: String,
    /// The UID of the request; empty if the audit record names none.
    #[serde(rename = "requestUid")]
    pub request_uid: String,
    /// The number of its parts by the audit record.
    pub parts: u32,
    /// The problems.
    pub findings: Vec<Problem>,
}

/// A problem of the stored data.
#[derive(Debug)]
pub enum Problem {
    /// The stored data differs from the recorded data.
    Differs(Finding),
    /// The part with this number is as it was recorded, but cannot be read.
    Unread(u32, SessionError),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(finding) => finding.fmt(formatter),
            Self::Unread(number, error) => {
                write!(
                    formatter,
                    "part {number} is as recorded, but not read: {error}"
                )
            }
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Checked {
    /// Checks whether there is a problem.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        !self.findings.is_empty()
    }
}

/// A recording as its audit record describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedHead {
    /// The session.
    pub key: SessionKey,
    /// The UID of the request; empty if the audit record names none.
    pub request_uid: String,
    /// The head of the chain of its parts.
    pub head: Head,
}

/// Compares the recordings of these heads with their stored data.
///
/// # Errors
/// The source cannot be read.
pub async fn check(
    source: &Source,
    heads: &[RecordedHead],
    identities: &Identities,
) -> Result<Vec<Checked>, SessionError> {
    let mut checked = Vec::new();
    for recorded in heads {
        let (key, head) = (&recorded.key, &recorded.head);
        let parts = source.parts(key, identities).await?;
        let session = key.to_string();
        let findings = recording::check(&session, Some(head), &parts).into_iter();
        let mut findings: Vec<Problem> = findings.map(Problem::Differs).collect();
        if findings.is_empty() {
            findings = unread(&parts, identities);
        }
        checked.push(Checked {
            session,
            request_uid: recorded.request_uid.clone(),
            parts: head.parts,
            findings,
        });
    }
    Ok(checked)
}

/// Returns the heads in audit records about recordings, by session.
#[must_use]
pub fn heads(entries: &[Entry]) -> Vec<RecordedHead> {
    let heads = entries.iter().filter_map(|entry| {
        let details = &entry.record.details;
        let key = SessionKey::read(details.get("session")?)?;
        let head = Head {
            parts: details.get("parts")?.parse().ok()?,
            digest: details.get("head")?.clone(),
        };
        let request_uid = entry.record.request.uid.clone();
        Some(RecordedHead {
            key,
            request_uid,
            head,
        })
    });
    let mut heads: Vec<_> = heads.collect();
    // A session may be in the cluster and in a log.
    heads.dedup();
    heads
}

/// Returns the parts that are as they were recorded, but cannot be read with the given identities.
fn unread(parts: &[Stored], identities: &Identities) -> Vec<Problem> {
    let is_encrypted = |part: &&Stored| part.name.form != Form::Plain && !identities.is_empty();
    let parts = parts.iter().filter(is_encrypted);
    let unread = parts.filter_map(|part| {
        let error = unpacked(&part.name, &part.bytes, identities).err()?;
        Some(Problem::Unread(part.name.number, error))
    });
    unread.collect()
}
