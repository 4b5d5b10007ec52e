//! The API group `crds.wizardofoz.co`: the parts that several kinds share, and under one roof the kinds
//! themselves, see [`crate::kinds`]. Field names, types and defaults are those of the original Oz; what is new here
//! is optional, so that its manifests stay valid. A doc comment is what `kubectl explain` shows.

#![allow(
    unreachable_pub,
    reason = "the derive KubeSchema puts a copy of the struct, still pub, into a function"
)]

mod access_config;
mod access_policy;
mod approval;
mod attestation;
pub(crate) mod binding;
mod debug;
mod emergency;
mod ending;
pub(crate) mod lock;
mod moderation;
mod mutation;
mod network;
pub(crate) mod optional;
mod recording;
mod request_status;
pub(crate) mod schema;
mod target_ref;
mod template_status;
mod ticket;

pub use crate::kinds::access_lock::{AccessLock, AccessLockSpec};
pub use crate::kinds::access_policy::{AccessPolicy, AccessPolicySpec};
pub use crate::kinds::access_request_approval::{AccessRequestApproval, AccessRequestApprovalSpec};
pub use crate::kinds::access_review::{AccessReview, AccessReviewSpec};
pub use crate::kinds::audit_event::{AuditEvent, AuditEventSpec};
pub use crate::kinds::example_com;
pub use crate::kinds::exec_access_request::{ExecAccessRequest, ExecAccessRequestSpec};
pub use crate::kinds::exec_access_template::{ExecAccessTemplate, ExecAccessTemplateSpec};
pub use crate::kinds::pod_access_request::{PodAccessRequest, PodAccessRequestSpec};
pub use crate::kinds::pod_access_template::{PodAccessTemplate, PodAccessTemplateSpec};
pub use crate::kinds::transient_cluster_role_binding::{
    TransientClusterRoleBinding, TransientClusterRoleBindingSpec,
};
pub use crate::kinds::transient_role_binding::{TransientRoleBinding, TransientRoleBindingSpec};
pub mod harness;
pub use access_config::{
    AccessConfig, Bind, DEFAULT_ACCESS_COMMAND, DEFAULT_DURATION, DEFAULT_MAX_DURATION, Follow,
    OnTemplateChange, Operation, Sessions,
};
pub use access_policy::{AccessPolicyStatus, PolicyApproval, PolicyDenial, PolicyThen};
pub use approval::{
    AccessRequestReference, ApprovalConfig, ApprovalRule, ApprovalStatus, ApprovedKind,
    DEFAULT_APPROVAL_TIMEOUT,
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
pub use lock::{LockTarget, LockedTemplate};
pub use moderation::ModerationConfig;
pub use mutation::{PatchOp, PatchSpecOperation, PodTemplateSpecMutationConfig};
pub use network::{Egress, Ingress, Network};
pub use recording::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
pub use request_status::{Phase, RequestStatus};
pub use schema::crds;
pub(crate) use schema::timestamp;
pub use target_ref::{CrossVersionObjectReference, TargetApiVersion, TargetKind};
pub use template_status::{SessionProbe, TemplateStatus, Timeout};
pub use ticket::{MAX_TICKET, TicketConfig};
pub(crate) use ticket::{TICKET, TICKET_MESSAGE};

/// The API group of every kind here.
pub const GROUP: &str = "crds.wizardofoz.co";
/// The one version, served and stored.
pub const VERSION: &str = "v1alpha1";

#[cfg(test)]
mod tests;
