//! The live objects of a grant, and what somebody else did to them. Labels and annotations of third
//! parties are not drift; a changed rule, subject or reference is, and so is a deletion.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

use super::grant::{self, Grant};
use super::request::Request;
use crate::api::Phase;
use crate::build;
use crate::controller::Live;

/// The live objects of one request, typed.
pub(crate) struct Objects<'a> {
    live: &'a [Live],
    pub(crate) role: Option<Role>,
    pub(crate) binding: Option<RoleBinding>,
}

impl<'a> Objects<'a> {
    pub(crate) fn of(request: &Request<'_>, live: &'a [Live]) -> Self {
        let name = grant::object_name(
            request.metadata.name.as_deref().unwrap_or_default(),
            request.uid(),
        );
        let ours = || live.iter().filter(|live| live.key().name == name);
        Self {
            live,
            role: ours().find_map(Live::parse),
            binding: ours().find_map(Live::parse),
        }
    }

    /// Every binding that is marked as the request's, under whatever name.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &'a Live> + use<'a> {
        self.live.iter().filter(|live| is_binding(live))
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

pub(crate) fn is_binding(live: &Live) -> bool {
    live.resource.kind == "RoleBinding"
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
