//! A bundle of evidence, as `ozctl audit evidence` makes it: which files are in it, what they say, and how that follows
//! from the records, so that whoever checks a bundle makes the same of the same records. No I/O: the archive is
//! written and read by the client.

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
pub use seal::{Seal, SealError, SealOrder, sealed};
pub use sums::Sums;

/// The form of a bundle, by which a program knows whether it can check it.
pub const FORMAT: &str = "oz-evidence/v1";

/// What the bundle is about.
pub const MANIFEST: &str = "manifest.json";
/// The public keys as the cluster published them.
pub const KEYS: &str = "keys.json";
/// The newest checkpoint of each writer, by slot.
pub const CHECKPOINTS: &str = "checkpoints.json";
/// The records of the time that the bundle is about: one object a line, in the order of their time.
pub const RECORDS: &str = "records.jsonl";
/// Records from before and after, by which it can be told that none is missing in between.
pub const BOUNDARY: &str = "boundary.jsonl";
/// Who approved and denied what.
pub const APPROVALS: &str = "approvals.csv";
/// Who reviewed what was opened in an emergency or as break-glass, and what nobody reviewed in time.
pub const REVIEWS: &str = "reviews.csv";
/// Who attested who could get in.
pub const ATTESTATIONS: &str = "attestations.csv";
/// One line for each request.
pub const SUMMARY: &str = "summary.csv";
/// The requests that were drawn.
pub const SAMPLE: &str = "sample.csv";
/// Templates and policies by digest.
pub const OBJECTS: &str = "objects.json";
/// Who could get in.
pub const ENTITLEMENTS: &str = "entitlements.json";
/// The same as CSV.
pub const ENTITLEMENTS_CSV: &str = "entitlements.csv";
/// What verifying the records came to.
pub const VERIFY: &str = "verify.json";
/// Which of the files answers which control.
pub const CONTROLS: &str = "controls.md";
/// The digest of each file before it.
pub const SUMS: &str = "SHA256SUMS";
/// The record by which the audit key signs the digest of [`SUMS`].
pub const SEAL: &str = "seal.json";

/// What a bundle is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// The first instant that it is about.
    pub from: Timestamp,
    /// The first instant after.
    pub to: Timestamp,
    /// Which requests are to be drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// What could not be read, beyond the gaps of the entitlements.
    pub gaps: BTreeSet<String>,
}

impl Manifest {
    /// The files of the bundle, in their order, without [`SUMS`] and [`SEAL`].
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

    /// Whether a record of this instant is among [`RECORDS`].
    #[must_use]
    pub fn covers(&self, time: Timestamp) -> bool {
        (self.from..self.to).contains(&time)
    }

    /// By what its records are judged.
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

/// Templates and policies by digest: their content stays in the cluster, as it may hold what is nobody's business.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectDigest {
    /// Kind.
    pub kind: String,
    /// Namespace; empty if it is in none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Digest of its spec: of a template, the one that the records of its grants have.
    pub digest: String,
}
