//! AccessPolicy: the rules of security over every template. `oz_core::access::policy` contains their effects on a
//! request.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE};
use crate::{AccessPolicyStatus, PolicyThen};

/// Which requests, and what holds for them.
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
    doc = "Says what holds for access requests, whatever their templates say.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    printcolumn = r#"{"name":"Match", "type":"string", "jsonPath":".spec.match", "description":"Which requests"}"#,
    printcolumn = r#"{"name":"Ready", "type":"boolean", "jsonPath":".status.ready", "description":"Whether it can be asked"}"#,
    printcolumn = r#"{"name":"Max", "type":"string", "jsonPath":".spec.then.maxDuration", "description":"The longest that access can last", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    /// A CEL expression that is true for the requests that the policy is about, over `requester`, `request`,
    /// `template`, `namespaceLabels`, `operations`, `active` and `now`. If it cannot be evaluated for a
    /// request, that request is refused.
    #[schemars(length(min = 1, max = 1024))]
    pub r#match: String,

    /// The time zone of `now`, by its name in the IANA database, as in Europe/Berlin. UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,

    /// What holds for these requests: something at least.
    pub then: PolicyThen,
}

impl Kind for AccessPolicy {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Policy;
    const NAME: &'static str = "accesspolicy";

    crate::defined!();
}
