//! The parts of a configuration that determine grants and their terms. The operator and a command that explains a
//! decision create the same controllers from them.

use oz_api::Reviewers;
use oz_composites::Account;
use oz_core::access::emergency::break_glass;
use oz_core::access::extra::ExtraKeys;
use oz_core::confine::NameServer;
use oz_core::gate::GateAccount;
use oz_core::settings::{Settings, keep_finished};
use oz_core::transient::{BindableRoles, Policy};

use crate::{Component, OzConfiguration};

impl OzConfiguration {
    /// Returns the settings by which an operator in `namespace` decides.
    #[must_use]
    pub fn settings(&self, namespace: &str) -> Settings {
        let keep = self.operator.keep_finished.map(|keep| keep.0);
        Settings {
            keep_finished: keep_finished(keep, self.audit.objects),
            pod_ready_timeout: self.operator.pod_ready_timeout.0,
            pod_access: self.access.pods,
            name_servers: self.name_servers(),
            impersonate_authors: self.operator.impersonate_authors,
            terminate_sessions: self.operator.terminate_sessions,
            access_namespaces: self.access.namespaces.clone(),
            policy_namespaces: self.composites.policy_namespaces.clone(),
            gate: self.gate.enabled.then(|| self.gate_account(namespace)),
            policy: self.policy(namespace),
        }
    }

    /// Returns the rules about transient bindings, for an installation in `namespace`.
    #[must_use]
    pub fn policy(&self, namespace: &str) -> Policy {
        let transient = &self.transient;
        let roles = transient.bindable_roles.iter().map(|role| role.0.clone());
        let limits = transient.max_binding_window_by_namespace.iter();
        Policy {
            roles: BindableRoles(roles.collect()),
            longest: transient.max_binding_window.0,
            longest_in: limits
                .map(|(name, limit)| (name.clone(), limit.0))
                .collect(),
            longest_lead: transient.max_binding_lead.0,
            most_waiting: transient.max_waiting_bindings,
            own_namespace: namespace.to_owned(),
        }
    }

    /// Returns the name servers that dedicated pods may query.
    fn name_servers(&self) -> Vec<NameServer> {
        if self.access.name_servers.is_empty() {
            return vec![NameServer::usual()];
        }
        let servers = self.access.name_servers.iter();
        servers.map(|server| server.0.clone()).collect()
    }

    /// Returns the service account of the gate in `namespace`.
    #[must_use]
    pub fn gate_account(&self, namespace: &str) -> GateAccount {
        GateAccount {
            namespace: namespace.to_owned(),
            name: self.installation.component_name(Component::Gate.name()),
        }
    }

    /// Returns the service account of composites that name none, for an installation in `namespace`; `None` if
    /// composites are disabled.
    #[must_use]
    pub fn composite_account(&self, namespace: &str) -> Option<Account> {
        let default = || Account {
            namespace: namespace.to_owned(),
            name: self.installation.component_name("composites"),
        };
        let account = self.composites.account.clone();
        self.composites
            .enabled
            .then(|| account.unwrap_or_else(default))
    }

    /// Returns the keys of the extra attributes of requesters that access policies can read.
    #[must_use]
    pub fn extra_keys(&self) -> ExtraKeys {
        let keys = self.webhook.requester_extra.iter();
        keys.map(|key| key.0.clone()).collect()
    }

    /// Returns the rules about the reviews of break-glass groups.
    #[must_use]
    pub fn break_glass_terms(&self) -> break_glass::Terms {
        let review = &self.webhook.break_glass_review;
        break_glass::Terms {
            within: review.deadline.0,
            reviewers: Reviewers {
                groups: review.groups.clone(),
                users: Vec::new(),
            },
        }
    }
}
