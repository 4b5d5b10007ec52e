//! The limits of the administrator for transient bindings: roles and durations. The webhook denies by them and the
//! operator checks them again, with the same configuration.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use oz_api::{RoleKind, RoleReference};

use super::danger::danger;
use super::privileged::Danger;
use super::roles::{BindableRoles, Listed};
use super::terms::Terms;
use crate::controller::Failure;

/// Reason of a denial or warning about a role that can be used to escalate privileges.
pub const ROLE_TOO_POWERFUL: &str = "RoleTooPowerful";

/// The limits of all transient bindings.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The roles that may be bound.
    pub roles: BindableRoles,
    /// The maximum length of a window.
    pub longest: SignedDuration,
    /// The maximum length of a window, by namespace.
    pub longest_in: BTreeMap<String, SignedDuration>,
    /// The maximum time between the creation of a binding and the opening of its window.
    pub longest_lead: SignedDuration,
    /// The maximum number of bindings of one user that wait for their windows to open; 0 for no limit.
    pub most_waiting: usize,
    /// The namespace of oz, where no role may be bound.
    pub own_namespace: String,
}

/// Creates the denial of a binding because its requester may not bind the role.
pub(super) fn may_not_bind(user: &str, role: &RoleReference) -> Failure {
    let message = format!(
        "{user} may not bind {} {} themselves (verb bind on the role), and so not through oz \
         either",
        role.kind, role.name
    );
    Failure::invalid("MayNotBind", message)
}

/// Returns the message about a binding to a role that does not exist.
pub(super) fn role_missing(role: &RoleReference) -> String {
    format!(
        "{} {} does not exist; the binding is created when it exists",
        role.kind, role.name
    )
}

impl Policy {
    /// Returns the maximum length of a window in this namespace; `None` for a cluster-wide binding.
    #[must_use]
    pub fn longest(&self, namespace: Option<&str>) -> SignedDuration {
        namespace
            .and_then(|namespace| self.longest_in.get(namespace))
            .copied()
            .unwrap_or(self.longest)
    }

    /// Checks whether the limits permit these terms, for any requester and without a read.
    ///
    /// # Errors
    /// The reason of the denial, with a message for users.
    pub fn permits(
        &self,
        terms: &Terms,
        namespace: Option<&str>,
        created: Timestamp,
    ) -> Result<Listed, Failure> {
        let listed = self.permits_role(&terms.role, namespace)?;
        let (length, longest) = (terms.length(created), self.longest(namespace));
        if length > longest {
            let place = namespace.map_or_else(
                || "in the whole cluster".to_owned(),
                |namespace| format!("in namespace {namespace}"),
            );
            return Err(Failure::invalid(
                "WindowTooLong",
                format!("a window of {length:#} is longer than the {longest:#} allowed {place}"),
            ));
        }
        self.permits_lead(terms, created)?;
        Ok(listed)
    }

    /// Checks whether a role may be bound in a namespace, or, with `None`, cluster-wide, and returns its entry in the
    /// list.
    ///
    /// # Errors
    /// The reason of the denial.
    pub fn permits_role(
        &self,
        role: &RoleReference,
        namespace: Option<&str>,
    ) -> Result<Listed, Failure> {
        if namespace == Some(self.own_namespace.as_str()) {
            return Err(Failure::invalid(
                "ReservedNamespace",
                format!(
                    "nothing can be bound in oz's own namespace {}; use another namespace",
                    self.own_namespace
                ),
            ));
        }
        let listed = self.roles.listed(role, namespace);
        if listed == Listed::No {
            return Err(Failure::invalid("RoleNotBindable", self.not_listed(role)));
        }
        Ok(listed)
    }

    fn not_listed(&self, role: &RoleReference) -> String {
        let what = format!("{} {} cannot be bound through oz", role.kind, role.name);
        if self.roles.is_empty() {
            return format!("{what}: no role can, see transient.bindableRoles");
        }
        format!("{what}: the bindable roles are {}", self.roles)
    }

    /// Checks whether a role with this entry in the list may be bound with these rules, in this namespace or, with
    /// `None`, cluster-wide. Returns a warning about a role that can be used to escalate privileges and is bound
    /// nevertheless.
    ///
    /// # Errors
    /// The reason of the denial, with a message for users.
    pub fn permits_content(
        role: &RoleReference,
        listed: Listed,
        rules: &[PolicyRule],
        namespace: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        let danger = match (role.kind, role.name.as_str()) {
            (RoleKind::ClusterRole, "cluster-admin") => Some(Danger::Everything),
            _ => danger(rules, namespace),
        };
        let Some(danger) = danger else {
            return Ok(None);
        };
        let what = format!(
            "{} {} can be used to extend its own rights, or to keep them ({danger})",
            role.kind, role.name
        );
        if listed == Listed::ByName {
            return Ok(Some(format!(
                "{what}; its effects inside the window do not end with the window"
            )));
        }
        Err(Failure::invalid(
            ROLE_TOO_POWERFUL,
            format!("{what}; oz binds it only if transient.bindableRoles names it in full"),
        ))
    }
}
