//! The live objects of a grant, and what somebody else did to them. Labels and annotations of third
//! parties are not drift; a changed rule, subject or reference is, and so is a deletion.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

use super::grant::{self, Grant};
use super::pod_state;
use super::request::Request;
use crate::api::Phase;
use crate::build;
use crate::controller::Live;

/// The live objects of one request, typed.
pub(crate) struct Objects {
    pub(crate) role: Option<Role>,
    pub(crate) binding: Option<RoleBinding>,
    pub(crate) pod: Option<Pod>,
    pub(crate) network_policy: Option<NetworkPolicy>,
}

impl Objects {
    pub(crate) fn of(request: &Request<'_>, live: &[Live]) -> Self {
        let name = grant::object_name(
            request.metadata.name.as_deref().unwrap_or_default(),
            request.uid(),
        );
        let ours = || live.iter().filter(|live| live.key().name == name);
        Self {
            role: ours().find_map(Live::parse),
            binding: ours().find_map(Live::parse),
            pod: ours().find_map(Live::parse),
            network_policy: ours().find_map(Live::parse),
        }
    }

    /// What is wrong when no Role carries a decision of ours; `None` if none is to be expected.
    pub(crate) fn without_decision(&self, request: &Request<'_>) -> Option<String> {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        if self.role.is_some() {
            return Some(format!(
                "the sealed decision on the Role of {name} was changed"
            ));
        }
        (self.binding.is_some() || request.phase() == Phase::Active)
            .then(|| format!("the Role of {name} was deleted"))
    }

    /// What differs from what the grant says; only in fields that are ours, since others may label
    /// and annotate.
    pub(crate) fn drift(&self, request: &Request<'_>, grant: &Grant) -> Option<String> {
        let name = grant.object_name();
        let role_differs = self
            .role
            .as_ref()
            .is_some_and(|role| role.rules.as_deref() != Some(&build::rules(grant)));
        if role_differs {
            return Some(format!("the rules of Role {name} were changed"));
        }
        let wanted = build::role_binding(grant);
        match &self.binding {
            Some(binding) if binding.role_ref != wanted.role_ref => {
                Some(format!("the roleRef of RoleBinding {name} was changed"))
            }
            Some(binding) if !same_subjects(binding, &wanted) => {
                Some(format!("the subjects of RoleBinding {name} were changed"))
            }
            None if request.phase() == Phase::Active => {
                Some(format!("RoleBinding {name} was deleted"))
            }
            _ => None,
        }
    }
}

/// Whether an object gives access: a binding, under whatever name, or a pod that was made for
/// somebody.
pub(crate) fn gives_access(live: &Live) -> bool {
    matches!(live.resource.kind.as_str(), "RoleBinding" | "Pod")
}

/// Whether access goes on through this object: a binding, or a pod whose containers were not seen
/// to have ended.
pub(crate) fn still_gives_access(live: &Live) -> bool {
    gives_access(live)
        && live
            .parse::<Pod>()
            .is_none_or(|pod| !pod_state::has_ended(&pod))
}

/// Whether a deletion would change nothing: it is on its way out, at once.
pub(crate) fn is_leaving(live: &Live) -> bool {
    let metadata = &live.object.metadata;
    metadata.deletion_timestamp.is_some()
        && metadata
            .deletion_grace_period_seconds
            .is_none_or(|seconds| seconds <= pod_state::GRACE_SECONDS)
}

/// Subjects are compared as RBAC reads them: an absent API group is the kind's own.
fn same_subjects(one: &RoleBinding, other: &RoleBinding) -> bool {
    let plain = |binding: &RoleBinding| {
        let mut subjects = binding.subjects.clone().unwrap_or_default();
        for subject in &mut subjects {
            subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
        }
        subjects
    };
    plain(one) == plain(other)
}
