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
/// What runs may have.
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
    doc = "Which credentials and hosts the harness runs of some templates may have in this namespace.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Templates", "type":"string", "jsonPath":".spec.appliesToTemplates", "description":"Whose runs it is for"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#,
    printcolumn = r#"{"name":"Discovery-Until", "type":"date", "jsonPath":".spec.egressDiscovery.expiresAt", "description":"Until when any host is let through", "priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BrokerPolicySpec {
    /// Names of templates, with *, ? and [], whose runs it is for.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub applies_to_templates: Vec<String>,

    /// What they may have.
    #[serde(default)]
    pub grants: Grants,

    /// How their connections are looked into. Absent means transparent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interception: Option<Interception>,

    /// Lets any host through for some days, on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_discovery: Option<EgressDiscovery>,

    /// How much they may have at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl Kind for BrokerPolicy {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::RunPolicy;
    const NAME: &'static str = "brokerpolicy";

    crate::defined!();
}

/// Any host is let through, and recorded, until an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ACCEPTED).message(ACCEPTED_MESSAGE).field_path(".accepted"),
    validation = Rule::new(REASON).message(REASON_MESSAGE).field_path(".reason"),
)]
pub struct EgressDiscovery {
    /// That its author knows what that means.
    pub accepted: bool,

    /// Why.
    #[schemars(length(min = 20, max = 500))]
    pub reason: String,

    /// Until when, at most seven days ahead.
    #[schemars(schema_with = "optional_timestamp")]
    pub expires_at: String,
}

/// How much may be had at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// How many runs of these templates may be live at once. Absent means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub concurrent_runs: Option<i32>,
}
