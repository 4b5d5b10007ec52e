//! The status of a broker policy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of a broker policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Conditions: Ready, Verified, SecretsReadable, DiscoveryModeActive, DiscoveryExpired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The spec that the webhook stamped. Unset if the spec has no valid stamp. Informational: brokers
    /// verify the stamp themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<VerifiedSpec>,
}

/// A stamped spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedSpec {
    /// Digest of the spec.
    pub digest: String,

    /// User who wrote the spec.
    pub author: String,
}
