//! The kinds of the API group `crds.wizardofoz.co`: one file for each, and one for each part that
//! several share. Field names, types and defaults are those of the original Oz; what is new here
//! is optional, so that its manifests stay valid. A doc comment is what `kubectl explain` shows.

#![allow(
    unreachable_pub,
    reason = "the derive KubeSchema puts a copy of the struct, still pub, into a function"
)]

mod access_config;
mod audit_event;
mod binding;
mod ending;
pub mod example_com;
mod exec_access_request;
mod exec_access_template;
mod mutation;
mod network;
mod optional;
mod pod_access_request;
mod pod_access_template;
mod request_status;
mod schema;
mod target_ref;
mod template_status;
mod transient_cluster_role_binding;
mod transient_role_binding;

pub use access_config::{
    AccessConfig, Bind, DEFAULT_ACCESS_COMMAND, DEFAULT_DURATION, DEFAULT_MAX_DURATION, Follow,
    OnTemplateChange, Operation, Sessions,
};
pub use audit_event::{AuditEvent, AuditEventSpec};
pub use binding::{
    BindingStatus, BindingSubject, RBAC_GROUP, RoleKind, RoleReference, SubjectKind,
};
pub use ending::{EndReason, Ending};
pub use exec_access_request::{ExecAccessRequest, ExecAccessRequestSpec};
pub use exec_access_template::{ExecAccessTemplate, ExecAccessTemplateSpec};
pub use mutation::{PatchOp, PatchSpecOperation, PodTemplateSpecMutationConfig};
pub use network::{Egress, Ingress, Network};
pub use pod_access_request::{PodAccessRequest, PodAccessRequestSpec};
pub use pod_access_template::{PodAccessTemplate, PodAccessTemplateSpec};
pub use request_status::{Phase, RequestStatus};
pub use schema::crds;
pub(crate) use schema::timestamp;
pub use target_ref::{CrossVersionObjectReference, TargetApiVersion, TargetKind};
pub use template_status::{SessionProbe, TemplateStatus, Timeout};
pub use transient_cluster_role_binding::{
    TransientClusterRoleBinding, TransientClusterRoleBindingSpec,
};
pub use transient_role_binding::{TransientRoleBinding, TransientRoleBindingSpec};

/// The API group of every kind here.
pub const GROUP: &str = "crds.wizardofoz.co";
/// The one version, served and stored.
pub const VERSION: &str = "v1alpha1";

#[cfg(test)]
mod tests;
