//! The kinds of group `crds.wizardofoz.co`, each in a file with type, columns and definition; except AuditEvent, with
//! an audit record of `oz-trail` as its spec, and RegoController, see [`rego`](crate::rego).

pub(crate) mod access_lock;
pub(crate) mod access_policy;
pub(crate) mod access_request_approval;
pub(crate) mod access_review;
pub(crate) mod exec_access_request;
pub(crate) mod exec_access_template;
pub(crate) mod pod_access_request;
pub(crate) mod pod_access_template;
pub(crate) mod transient_cluster_role_binding;
pub(crate) mod transient_role_binding;
