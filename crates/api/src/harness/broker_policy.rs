//! BrokerPolicy: the access that the runs of some templates may have in a namespace.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy_grants::{
    ACCEPTED, ACCEPTED_MESSAGE, Grants, Interception, REASON, REASON_MESSAGE,
};
use super::policy_status::PolicyStatus;
use crate::kind::{Family, Kind, Role};
use crate::schema::optional_timestamp;

const SPEC_IS_GIVEN: &str = "has(self.spec)";
const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";
/// The templates to which the broker policy applies, and its grants.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "paddock.dev",
    version = "v1alpha1",
    kind = "BrokerPolicy",
    plural = "brokerpolicies",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "bp",
    annotation("api-approved.kubernetes.io", "unapproved: published by Paddock"),
    doc = "The credentials and hosts that the harness runs of some templates may have in this \
        namespace.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Templates", "type":"string", "jsonPath":".spec.appliesToTemplates", "description":"Templates whose runs the policy is for"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#,
    printcolumn = r#"{"name":"Discovery-Until", "type":"date", "jsonPath":".spec.egressDiscovery.expiresAt", "description":"Time until which the discovery is accepted", "priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BrokerPolicySpec {
    /// Names of templates to whose runs the broker policy applies, from 1 to 64, with the wildcards *, ?
    /// and [].
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub applies_to_templates: Vec<String>,

    /// Credentials, hosts and operations that the runs get. Nothing if unset.
    #[serde(default)]
    pub grants: Grants,

    /// Mode of the interception of connections. transparent if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interception: Option<Interception>,

    /// Temporary permission for all hosts, with an audit record of each. Not served yet: without effect on
    /// connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_discovery: Option<EgressDiscovery>,

    /// Limits over all runs of these templates. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl Kind for BrokerPolicy {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::RunPolicy;
    const NAME: &'static str = "brokerpolicy";

    crate::defined!();
}

/// A temporary permission for all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ACCEPTED).message(ACCEPTED_MESSAGE).field_path(".accepted"),
    validation = Rule::new(REASON).message(REASON_MESSAGE).field_path(".reason"),
)]
pub struct EgressDiscovery {
    /// Confirmation that the author accepts the risk; must be true.
    pub accepted: bool,

    /// Reason for the permission, from 20 to 500 characters.
    #[schemars(length(min = 20, max = 500))]
    pub reason: String,

    /// Expiry, in RFC 3339; at most seven days ahead.
    #[schemars(schema_with = "optional_timestamp")]
    pub expires_at: String,
}

/// Limits over all runs to which a broker policy applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Maximum number of active runs. Further runs wait, and the oldest starts first. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub concurrent_runs: Option<i32>,
}
