//! A bundle of evidence, as `ozctl audit evidence` creates it: its files, their content, and the derivation of the
//! content from the records, so that a check of the bundle derives the same content from the same records. No I/O: the
//! client writes and reads the archive.

mod accounts;
mod controls;
mod sample;
mod seal;
mod sums;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use oz_trail::Trust;
use oz_trail::verify::Terms;
use serde::{Deserialize, Serialize};

pub use accounts::{Accounts, RequestAccount};
pub use controls::controls;
pub use sample::{Sample, rank};
pub use seal::{OrderError, Seal, SealError, SealOrder, sealed};
pub use sums::{Difference, Sums};

/// The format of a bundle, by which a program detects whether it can check the bundle.
pub const FORMAT: &str = "oz-evidence/v1";

/// The scope of the bundle.
pub const MANIFEST: &str = "manifest.json";
/// The public keys as the cluster published them.
pub const KEYS: &str = "keys.json";
/// The newest checkpoint of each writer, by slot.
pub const CHECKPOINTS: &str = "checkpoints.json";
/// The records of the time that the bundle covers: one object a line, in the order of their time.
pub const RECORDS: &str = "records.jsonl";
/// Records from before and after that time, which prove that none is missing in between.
pub const BOUNDARY: &str = "boundary.jsonl";
/// The approvals and denials, with their approvers.
pub const APPROVALS: &str = "approvals.csv";
/// The reviews of emergencies and of break-glass access, and the reviews that are overdue.
pub const REVIEWS: &str = "reviews.csv";
/// The attestations of entitlements.
pub const ATTESTATIONS: &str = "attestations.csv";
/// A table with one line for each request.
pub const SUMMARY: &str = "summary.csv";
/// The sampled requests.
pub const SAMPLE: &str = "sample.csv";
/// The templates and policies by digest.
pub const OBJECTS: &str = "objects.json";
/// The entitlements.
pub const ENTITLEMENTS: &str = "entitlements.json";
/// The entitlements as CSV.
pub const ENTITLEMENTS_CSV: &str = "entitlements.csv";
/// The result of verifying the records.
pub const VERIFY: &str = "verify.json";
/// The controls and the files that answer each.
pub const CONTROLS: &str = "controls.md";
/// The digest of each of the preceding files.
pub const SUMS: &str = "SHA256SUMS";
/// The record with which the audit key signs the digest of [`SUMS`].
pub const SEAL: &str = "seal.json";

/// The scope of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The format, [`FORMAT`].
    pub format: String,
    /// The first instant that the bundle covers.
    pub from: Timestamp,
    /// The first instant after that time.
    pub to: Timestamp,
    /// The selection of the sampled requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// The data that could not be read, in addition to the gaps of the entitlements.
    pub gaps: BTreeSet<String>,
}

impl Manifest {
    /// Returns the files of the bundle, in their order, without [`SUMS`] and [`SEAL`].
    #[must_use]
    pub fn files(&self) -> Vec<&'static str> {
        let mut files = vec![
            MANIFEST,
            KEYS,
            CHECKPOINTS,
            RECORDS,
            BOUNDARY,
            APPROVALS,
            REVIEWS,
            ATTESTATIONS,
            SUMMARY,
        ];
        if self.sample.is_some() {
            files.push(SAMPLE);
        }
        files.extend([OBJECTS, ENTITLEMENTS, ENTITLEMENTS_CSV, VERIFY, CONTROLS]);
        files
    }

    /// Checks whether a record of this instant is in [`RECORDS`].
    #[must_use]
    pub fn covers(&self, time: Timestamp) -> bool {
        (self.from..self.to).contains(&time)
    }

    /// Returns the terms by which the records are verified.
    #[must_use]
    pub fn terms(&self, trust: Trust) -> Terms {
        Terms {
            trust,
            objects_kept_since: Some(self.from),
            objects_until: Some(self.to),
            ..Terms::default()
        }
    }
}

/// A template or a policy by digest: its content stays in the cluster, since it may be confidential.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectDigest {
    /// Kind.
    pub kind: String,
    /// Namespace; empty for a cluster-wide object.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Digest of the spec; for a template, the digest in the records of its grants.
    pub digest: String,
}
