//! The finding of a review, in its audit record. A review is deleted with its namespace; this record is of the
//! whole cluster, and proves under a seal that the access was reviewed.

use oz_api::{AccessReview, Name};
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};

use crate::lifecycle::seal::{self, Keys, Purpose, SealError};

const PURPOSE: Purpose = Purpose::FindingRecord;

/// The detail of an audit record with the name of the review.
const REVIEW: &str = "review";
/// The detail of an audit record with the finding.
const FINDING: &str = "finding";
/// The detail of an audit record with the seal.
const PROOF: &str = "proof";

/// The content of the seal in an audit record.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    namespace: String,
    review: String,
    /// UID of the request; that of the review if there is no request.
    uid: String,
    finding: String,
}

/// A finding, as its audit record proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingOnRecord<'a> {
    /// Namespace of the reviewed access.
    pub namespace: &'a str,
    /// Name of the review.
    pub review: &'a str,
    /// UID of the request; that of the review if there is no request.
    pub uid: &'a str,
}

/// Adds the proof of a finding to its audit record, which has the finding among its details.
///
/// # Errors
/// If the review has no name, or the proof does not serialise, which its types rule out.
pub fn proven(keys: &Keys, record: Record, review: &AccessReview) -> Result<Record, SealError> {
    let name = Name::from_metadata(&review.metadata)?;
    let record = record.detail(REVIEW, name.to_string());
    let Some(proof) = read_proof(&record) else {
        return Ok(record);
    };
    let sealed = seal::seal(keys, PURPOSE, &proof)?;
    Ok(record.detail(PROOF, sealed))
}

/// Returns the sealed data of an audit record.
fn read_proof(record: &Record) -> Option<Proof> {
    Some(Proof {
        namespace: record.request.namespace.clone(),
        review: record.details.get(REVIEW)?.clone(),
        uid: record.request.uid.clone(),
        finding: record.details.get(FINDING)?.clone(),
    })
}

/// Reads a finding from an audit record; `None` if the record is of another kind, or was not written by oz.
#[must_use]
pub fn on_record<'a>(keys: &Keys, record: &'a Record) -> Option<FindingOnRecord<'a>> {
    if record.action != Action::ReviewGiven {
        return None;
    }
    let proof: Proof = seal::open(keys, PURPOSE, record.details.get(PROOF)?).ok()?;
    (proof == read_proof(record)?).then_some(FindingOnRecord {
        namespace: &record.request.namespace,
        review: record.details.get(REVIEW)?,
        uid: &record.request.uid,
    })
}
