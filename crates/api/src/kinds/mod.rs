//! The kinds of group `crds.wizardofoz.co`: a file each, with its type, names, columns and definition.

#![allow(
    unreachable_pub,
    reason = "the derive KubeSchema puts a copy of the struct, still pub, into a function"
)]

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
