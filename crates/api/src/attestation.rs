//! `spec.attestation` and `spec.breakGlass` of a review: the subjects of reviews other than emergencies.

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema::timestamp;

/// The maximum number of lines to remove that an attestation names. The digest of the file covers all lines.
pub const MOST_REMOVALS: usize = 64;

/// Decisions of a user about the entitlements of other users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// Digest of the list of entitlements, as `ozctl audit entitlements` prints it.
    #[schemars(length(max = 128))]
    pub entitlements: String,

    /// SHA-256 digest of the file with the decisions.
    #[schemars(length(max = 128))]
    pub file: String,

    /// Number of entitlements to keep.
    #[schemars(range(min = 0))]
    pub kept: i64,

    /// Number of entitlements to remove.
    #[schemars(range(min = 0))]
    pub removed: i64,

    /// Number of objects that could not be read when the list was created, so that entitlements may be
    /// missing.
    #[schemars(range(min = 0))]
    pub gaps: i64,

    /// The first 64 entitlements to remove, in the order of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub removals: Vec<Removal>,
}

/// An entitlement to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct Removal {
    /// Text of the entitlement, of at most 1024 characters.
    #[schemars(length(max = 1024))]
    pub entitlement: String,

    /// Reason for the removal, of at most 1024 characters.
    #[schemars(length(max = 1024))]
    pub rationale: String,
}

/// A period in which a user connected to pods of an enforcing namespace by break-glass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct BreakGlassWindow {
    /// First instant of the period.
    #[schemars(schema_with = "timestamp")]
    pub from: Timestamp,

    /// First instant after the period. The finding can be written from then on.
    #[schemars(schema_with = "timestamp")]
    pub until: Timestamp,
}
