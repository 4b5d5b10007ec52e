//! AccessReview: the review of an emergency or of a use of break-glass. oz creates one for each; it has no owner and
//! outlives its request, so that the deletion of another object does not delete it. An attestation about the users who
//! could get access is a review too, which the attesting user creates and writes at once.

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::optional::not_empty;
use crate::schema::{SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, timestamp};
use crate::{
    AccessRequestReference, Attestation, BreakGlassWindow, Finding, RecordsSoFar, ReviewStatus,
    Reviewed, Reviewers,
};

/// The reviewed access, the permitted reviewers, and their finding.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "AccessReview",
    plural = "accessreviews",
    namespaced,
    status = "ReviewStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "arv",
    category = "oz",
    doc = "The review of an emergency or a use of break-glass by a user who did not take part; oz \
        creates it. Or an attestation of entitlements.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(FINDING_IS_FINAL).message(FINDING_IS_FINAL_MESSAGE).field_path(".spec"),
    validation = Rule::new(ABOUT_ONE_THING).message(ABOUT_ONE_THING_MESSAGE).field_path(".spec"),
    validation = Rule::new(ATTESTATION_ALONE).message(ATTESTATION_ALONE_MESSAGE).field_path(".spec"),
    validation = Rule::new(FINDING_HAS_REASON).message(FINDING_HAS_REASON_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Request", "type":"string", "jsonPath":".spec.accessRequestRef.name", "description":"Reviewed request"}"#,
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.accessRequestRef.kind", "description":"Kind of the request", "priority":1}"#,
    printcolumn = r#"{"name":"Requester", "type":"string", "jsonPath":".spec.requester.user", "description":"User of the reviewed access"}"#,
    printcolumn = r#"{"name":"Due", "type":"string", "jsonPath":".spec.dueAt", "description":"Time at which the review is due"}"#,
    printcolumn = r#"{"name":"Overdue", "type":"string", "jsonPath":".status.conditions[?(@.type=='Overdue')].status", "description":"Whether the review is overdue"}"#,
    printcolumn = r#"{"name":"Finding", "type":"string", "jsonPath":".spec.finding", "description":"Finding of the reviewer"}"#,
    printcolumn = r#"{"name":"By", "type":"string", "jsonPath":".metadata.annotations.crds\\.wizardofoz\\.co/reviewed-by", "description":"Reviewer"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since the review was opened"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AccessReviewSpec {
    /// The request that declared an emergency. Each review has exactly one of accessRequestRef, breakGlass
    /// and attestation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_request_ref: Option<AccessRequestReference>,

    /// Period of break-glass access that is reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_glass: Option<BreakGlassWindow>,

    /// Decisions about the entitlements of users. An attestation has them from its creation, and has no
    /// other field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,

    /// Namespace of the reviewed access, if the review is in oz's own namespace since that namespace was deleted or
    /// does not accept the review; empty if the access was to the whole cluster. If unset, it is the namespace of the
    /// review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub reviewed_namespace: Option<String>,

    /// The user who declared the emergency or used break-glass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requester: Reviewed,

    /// Name of the template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub template: String,

    /// Reason that the requester gave for the emergency; for break-glass, the first connection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub emergency: String,

    /// Time of the grant; for break-glass, of the first connection.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "timestamp")]
    pub granted_at: Timestamp,

    /// The audit records that existed when the review was opened.
    #[serde(default, skip_serializing_if = "is_default")]
    pub records: RecordsSoFar,

    /// Time until which a reviewer must write the finding. From then on, the review is Overdue; the finding
    /// can still be written.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "timestamp")]
    pub due_at: Timestamp,

    /// Users who may write the finding, except the requester. If empty for break-glass, every user who may
    /// update reviews in the namespace.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reviewers: Reviewers,

    /// Finding of the reviewer: Justified, Unjustified or FollowUp. It is written once, together with
    /// reason, and cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,

    /// Reason for the finding, of at most 1024 characters. Required with finding.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

impl Kind for AccessReview {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Review;
    const NAME: &'static str = "accessreview";

    crate::defined!();
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl AccessReview {
    /// Returns the namespace of the reviewed access, which may be deleted.
    #[must_use]
    pub fn reviewed_namespace(&self) -> Option<&str> {
        let reviewed = self.spec.reviewed_namespace.as_deref();
        reviewed.or(self.metadata.namespace.as_deref())
    }
}

impl AccessReviewSpec {
    /// Checks whether the required content is written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.finding.is_some() || self.attestation.is_some()
    }

    /// Returns the content that oz wrote: all except the finding.
    #[must_use]
    pub fn opened(&self) -> Self {
        Self {
            finding: None,
            reason: None,
            ..self.clone()
        }
    }
}

/// The rule that a finding and its subject do not change.
const FINDING_IS_FINAL: &str = "has(self.spec) == has(oldSelf.spec) && (!has(self.spec) \
    || self.spec == oldSelf.spec || !has(oldSelf.spec.finding) && has(self.spec.finding) \
    && has(self.spec.accessRequestRef) == has(oldSelf.spec.accessRequestRef) \
    && (!has(self.spec.accessRequestRef) || self.spec.accessRequestRef == oldSelf.spec.accessRequestRef) \
    && has(self.spec.breakGlass) == has(oldSelf.spec.breakGlass) \
    && (!has(self.spec.breakGlass) || self.spec.breakGlass == oldSelf.spec.breakGlass) \
    && has(self.spec.reviewedNamespace) == has(oldSelf.spec.reviewedNamespace) \
    && (!has(self.spec.reviewedNamespace) || self.spec.reviewedNamespace == oldSelf.spec.reviewedNamespace) \
    && has(self.spec.requester) == has(oldSelf.spec.requester) \
    && (!has(self.spec.requester) || self.spec.requester == oldSelf.spec.requester) \
    && has(self.spec.dueAt) == has(oldSelf.spec.dueAt) \
    && (!has(self.spec.dueAt) || self.spec.dueAt == oldSelf.spec.dueAt) \
    && has(self.spec.reviewers) == has(oldSelf.spec.reviewers) \
    && (!has(self.spec.reviewers) || self.spec.reviewers == oldSelf.spec.reviewers))";

/// The message of [`FINDING_IS_FINAL`].
const FINDING_IS_FINAL_MESSAGE: &str =
    "a review is written once: spec.finding and spec.reason, and nothing else of it changes";

const ABOUT_ONE_THING: &str = "!has(self.spec) || (has(self.spec.accessRequestRef) ? 1 : 0) \
    + (has(self.spec.breakGlass) ? 1 : 0) + (has(self.spec.attestation) ? 1 : 0) == 1";

/// The message of [`ABOUT_ONE_THING`].
const ABOUT_ONE_THING_MESSAGE: &str =
    "a review is about one of spec.accessRequestRef, spec.breakGlass and spec.attestation";

const ATTESTATION_ALONE: &str = "!has(self.spec) || (has(self.spec.attestation) \
    ? !has(self.spec.requester) && !has(self.spec.emergency) && !has(self.spec.grantedAt) \
    && !has(self.spec.records) && !has(self.spec.dueAt) && !has(self.spec.finding) \
    && !has(self.spec.reason) && !has(self.spec.template) && !has(self.spec.reviewers) \
    && !has(self.spec.reviewedNamespace) \
    : has(self.spec.requester) && has(self.spec.emergency) && has(self.spec.grantedAt) \
    && has(self.spec.records) && has(self.spec.dueAt))";

/// The message of [`ATTESTATION_ALONE`].
const ATTESTATION_ALONE_MESSAGE: &str = "an attestation must have spec.attestation alone; any \
    other review must have spec.requester, emergency, grantedAt, records and dueAt";

const FINDING_HAS_REASON: &str =
    "!has(self.spec) || has(self.spec.finding) == has(self.spec.reason)";

/// The message of [`FINDING_HAS_REASON`].
const FINDING_HAS_REASON_MESSAGE: &str = "spec.finding and spec.reason go together";
