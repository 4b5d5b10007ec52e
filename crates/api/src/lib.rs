//! The API of oz: the kinds of group `crds.wizardofoz.co` and the types that they share, the kinds of harness runs
//! ([`harness`]), of composites ([`composite`], [`rego`]) and the published ones ([`example_com`]); the names and
//! properties of every kind ([`kind`]) and the common parts of their definitions ([`schema`]); and the vocabulary of
//! every other crate: labels, names, conditions, durations, instants, users, globs, digests ([`encode`]). The rules over
//! them are in `oz-core` and above.
//!
//! Field names, types and defaults are those of the systems that oz replaces; new fields are optional, so that their
//! manifests stay valid. `kubectl explain` shows the doc comments.

#![allow(
    unreachable_pub,
    reason = "the derive KubeSchema puts a copy of the struct, still pub, into a function"
)]

mod access_config;
mod access_policy;
mod approval;
mod attestation;
mod binding;
pub mod composite;
pub mod conditions;
mod debug;
pub mod duration;
mod emergency;
pub mod encode;
mod ending;
pub mod example_com;
pub mod form;
pub mod glob;
pub mod harness;
mod header_keys;
mod identity;
pub mod instant;
pub mod kind;
mod kinds;
pub mod labels;
mod lock;
mod moderation;
mod mutation;
pub mod names;
mod network;
mod optional;
mod recording;
pub mod rego;
mod request_status;
mod requester;
pub mod schema;
mod target_ref;
mod template_status;
pub mod text;
mod ticket;

pub use access_config::{
    AccessConfig, Bind, DEFAULT_ACCESS_COMMAND, DEFAULT_DURATION, DEFAULT_MAX_DURATION,
    OnPodReplacement, OnTemplateChange, Operation, Sessions,
};
pub use access_policy::{AccessPolicyStatus, PolicyApproval, PolicyDenial, PolicyThen};
pub use approval::{
    AccessRequestReference, ApprovalConfig, ApprovalRule, ApprovalStatus, ApprovedKind,
    DEFAULT_APPROVAL_TIMEOUT, Escalation, OnCallCheck,
};
pub use attestation::{Attestation, BreakGlassWindow, MOST_REMOVALS, Removal};
pub use binding::{
    BindingStatus, BindingSubject, RBAC_GROUP, RoleKind, RoleReference, SubjectKind,
};
pub use debug::DebugConfig;
pub use emergency::{
    DEFAULT_EMERGENCY_DURATION, DEFAULT_OPEN_REVIEWS, DEFAULT_REVIEW_WITHIN, EmergencyConfig,
    Finding, RecordsSoFar, ReviewConfig, ReviewStatus, Reviewed, Reviewers,
};
pub use ending::{EndReason, Ending};
pub use header_keys::{HeaderKeys, HeaderKeysError};
pub use identity::{Identity, IdentityError, Name, Namespace, Uid};
pub use kinds::access_lock::{AccessLock, AccessLockSpec};
pub use kinds::access_policy::{AccessPolicy, AccessPolicySpec};
pub use kinds::access_request_approval::{AccessRequestApproval, AccessRequestApprovalSpec};
pub use kinds::access_review::{AccessReview, AccessReviewSpec};
pub use kinds::exec_access_request::{
    ExecAccessRequest, ExecAccessRequestSpec, TARGET_POD_IS_IMMUTABLE_MESSAGE,
};
pub use kinds::exec_access_template::{ExecAccessTemplate, ExecAccessTemplateSpec};
pub use kinds::pod_access_request::{PodAccessRequest, PodAccessRequestSpec};
pub use kinds::pod_access_template::{PodAccessTemplate, PodAccessTemplateSpec};
pub use kinds::transient_cluster_role_binding::{
    TransientClusterRoleBinding, TransientClusterRoleBindingSpec,
};
pub use kinds::transient_role_binding::{TransientRoleBinding, TransientRoleBindingSpec};
pub use lock::{LockTarget, LockedTemplate};
pub use moderation::ModerationConfig;
pub use mutation::{PatchOp, PatchSpecOperation, PodTemplateSpecMutationConfig};
pub use network::{Egress, Ingress, Network};
pub use recording::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
pub use request_status::{Phase, RequestStatus};
pub use requester::Requester;
pub use target_ref::{CrossVersionObjectReference, TargetApiVersion, TargetKind};
pub use template_status::{SessionProbe, TemplateStatus, Timeout};
pub use ticket::{MAX_TICKET, TicketConfig};
pub(crate) use ticket::{TICKET, TICKET_MESSAGE};

/// The API group of oz's own kinds.
pub const GROUP: &str = "crds.wizardofoz.co";
/// The one version, served and stored.
pub const VERSION: &str = "v1alpha1";

#[cfg(test)]
mod tests;
