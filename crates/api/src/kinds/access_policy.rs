//! AccessPolicy: the rules of security over every template. `oz_core::access::policy` contains their effects on a
//! request.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE};
use crate::{AccessPolicyStatus, PolicyThen};

/// The requests to which the access policy applies, and its effects on them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "AccessPolicy",
    plural = "accesspolicies",
    status = "AccessPolicyStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ap",
    category = "oz",
    doc = "Defines rules for access requests, regardless of their templates.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    printcolumn = r#"{"name":"Match", "type":"string", "jsonPath":".spec.match", "description":"Expression that selects requests"}"#,
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"Whether the policy can be evaluated"}"#,
    printcolumn = r#"{"name":"Max", "type":"string", "jsonPath":".spec.then.maxDuration", "description":"Maximum duration of access", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    /// CEL expression that selects the requests to which the access policy applies, of at most 1024
    /// characters. Variables: `requester`, `request`, `template`, `namespaceLabels`, `operations`, `active`
    /// and `now`. A request for which the evaluation fails is denied.
    #[schemars(length(min = 1, max = 1024))]
    pub r#match: String,

    /// Time zone of `now`, as a name of the IANA database such as Europe/Berlin. UTC if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,

    /// Effects on the selected requests; at least one is required. Of several matching access policies, the
    /// strictest effect of each kind applies.
    pub then: PolicyThen,
}

impl Kind for AccessPolicy {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Policy;
    const NAME: &'static str = "accesspolicy";

    crate::defined!();
}
