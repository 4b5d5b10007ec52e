//! What the operator of a cluster allows: which roles, for how long. The webhook refuses by it and
//! the operator checks it again, so both read the same configuration.

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

/// The reason of what is refused, or told, of a role by which more can be had than it says.
pub const ROLE_TOO_POWERFUL: &str = "RoleTooPowerful";

/// The terms on which anything may be bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which roles.
    pub roles: BindableRoles,
    /// For how long at most.
    pub longest: SignedDuration,
    /// For how long at most in single namespaces.
    pub longest_in: BTreeMap<String, SignedDuration>,
    /// How long after the creation of a binding its window opens at the latest.
    pub longest_lead: SignedDuration,
    /// How many bindings of one user may wait for their windows to open; 0 for any number.
    pub most_waiting: usize,
    /// oz's own namespace, in which nothing may be bound.
    pub own_namespace: String,
}

impl Policy {
    /// The longest window of a binding in this namespace; `None` for the whole cluster.
    #[must_use]
    pub fn longest(&self, namespace: Option<&str>) -> SignedDuration {
        namespace
            .and_then(|namespace| self.longest_in.get(namespace))
            .copied()
            .unwrap_or(self.longest)
    }

    /// Whether these terms may be asked for at all, whoever asks. All of it is known before
    /// anything is read.
    ///
    /// # Errors
    /// The reason, for people.
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

    /// Whether a role may be bound in a namespace, or, with `None`, in the whole cluster; and how it is listed.
    ///
    /// # Errors
    /// Why not.
    pub fn permits_role(
        &self,
        role: &RoleReference,
        namespace: Option<&str>,
    ) -> Result<Listed, Failure> {
        if namespace == Some(self.own_namespace.as_str()) {
            return Err(Failure::invalid(
                "OwnNamespace",
                format!(
                    "nothing is bound in oz's own namespace {}; use another namespace",
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
        format!("{what}: the roles that can are {}", self.roles)
    }

    /// Whether a role that stands on the list like this may be bound with this content, in this namespace or
    /// in the whole cluster. If it is bound although it can be used to get more than it says, that is to be told.
    ///
    /// # Errors
    /// The reason, for people.
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
            "{} {} can be used to get more than it says, or to keep it ({danger})",
            role.kind, role.name
        );
        if listed == Listed::ByName {
            return Ok(Some(format!(
                "{what}; what is done with it inside the window does not end with the window"
            )));
        }
        Err(Failure::invalid(
            ROLE_TOO_POWERFUL,
            format!(
                "{what}; it is bound through oz only if transient.bindableRoles names it in full"
            ),
        ))
    }
}
