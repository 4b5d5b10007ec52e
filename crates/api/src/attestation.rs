//! `spec.attestation` and `spec.breakGlass` of a review: the subjects of reviews other than emergencies.

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema::timestamp;

/// The maximum number of lines to remove that an attestation names. The digest of the file covers all lines.
pub const MOST_REMOVALS: usize = 64;

/// What somebody decided about each line of who could get in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// Digest of the list of entitlements, as `ozctl audit entitlements` says it.
    #[schemars(length(max = 128))]
    pub entitlements: String,

    /// Digest of the file with the decisions, of each byte of it.
    #[schemars(length(max = 128))]
    pub file: String,

    /// How many lines are to be kept.
    #[schemars(range(min = 0))]
    pub kept: i64,

    /// How many are to be removed.
    #[schemars(range(min = 0))]
    pub removed: i64,

    /// How much could not be read when the list was made, so that lines may be missing.
    #[schemars(range(min = 0))]
    pub gaps: i64,

    /// What is to be removed: the first 64, in the order of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub removals: Vec<Removal>,
}

/// One line that is to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct Removal {
    /// The line, in words.
    #[schemars(length(max = 1024))]
    pub entitlement: String,

    /// Why it is to be removed.
    #[schemars(length(max = 1024))]
    pub rationale: String,
}

/// A time in which somebody got into pods of an enforcing namespace as break-glass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct BreakGlassWindow {
    /// The first instant.
    #[schemars(schema_with = "timestamp")]
    pub from: Timestamp,

    /// The first instant after. A finding is written from then on, as it is about all of the time.
    #[schemars(schema_with = "timestamp")]
    pub until: Timestamp,
}
