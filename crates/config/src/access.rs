//! The installation, its logs, access to pods, and transient bindings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oz_api::names;
use oz_core::confine::NameServer;
use oz_core::transient::RolePattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::values::{LABEL, Positive, Text};

/// The names of the installation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Installation {
    /// The prefix of the names of all objects: Deployments, Services and service accounts are called
    /// NAME-operator, NAME-webhook, NAME-gate and NAME-broker.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// The user names of the components, if they are not those of the service accounts.
    pub users: Users,
    /// The installation has the ValidatingAdmissionPolicies of the chart. The operator reports a missing or
    /// changed one.
    pub policies: bool,
    /// The directory in which the keys of Secrets are mounted as files: `collector` for the collector,
    /// `notifications/ROUTE`, `tickets/CHECK`, `hooks/HOST`, `proxy`, `recordings`, `recordings-identity`, and `client-ca` for the
    /// certificate authorities of the API servers.
    pub secrets: PathBuf,
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            name: "oz".to_owned(),
            users: Users::default(),
            policies: false,
            secrets: PathBuf::from("/etc/oz"),
        }
    }
}

impl Installation {
    /// Returns the name of a component's Deployment, Service and service account.
    #[must_use]
    pub fn component_name(&self, component: &str) -> String {
        format!("{}-{component}", self.name)
    }

    /// Returns the user name of a component, for an installation in `namespace`.
    #[must_use]
    pub fn user(&self, component: Component, namespace: &str) -> String {
        let given = match component {
            Component::Operator => &self.users.operator,
            Component::Webhook => &self.users.webhook,
            Component::Gate => &self.users.gate,
            Component::Broker => &self.users.broker,
        };
        let account = || names::service_account(namespace, &self.component_name(component.name()));
        given.clone().unwrap_or_else(account)
    }
}

/// User names of the components.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Users {
    /// The operator, the only user that may write the status of templates and requests.
    pub operator: Option<String>,
    /// The webhook.
    pub webhook: Option<String>,
    /// The gate.
    pub gate: Option<String>,
    /// The broker.
    pub broker: Option<String>,
}

/// Logs, on standard error. The flag `--log` of a process replaces the filter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// The log filter, such as `info` or `info,oz_engine=debug`.
    #[schemars(length(min = 1))]
    pub filter: String,
    /// The format of log lines.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// A format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text.
    #[default]
    Text,
    /// A JSON object for each line.
    Json,
}

impl From<LogFormat> for oz_runtime::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Access to pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Access {
    /// Namespaces in which oz can grant access. Empty for all. In other namespaces, the webhook denies requests.
    #[schemars(inner(length(min = 1, max = 63), regex(pattern = LABEL)), extend("uniqueItems" = true))]
    pub namespaces: Vec<String>,
    /// Grant access to dedicated pods. Without it, the operator ignores PodAccessRequests and their templates.
    pub pods: bool,
    /// Name servers that dedicated pods with `egress: Dns` in their template may query; they may connect to no other
    /// server: NAMESPACE/LABEL=VALUE for pods, ADDRESS/BITS for others, such as 169.254.20.10/32 for a cache on each
    /// node; both may end in :PORT. Empty for kube-system/k8s-app=kube-dns.
    #[schemars(inner(regex(pattern = r"^[^,/ ]+/[^, ]+$")), extend("uniqueItems" = true))]
    pub name_servers: Vec<Text<NameServer>>,
    /// Age at which the next key replaces the key with which a component seals its decisions. A seal is valid for as
    /// long again: no grant may last longer than this.
    pub signing_key_life: Positive,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            pods: true,
            name_servers: Vec::new(),
            signing_key_life: Positive::seconds(90 * 24 * 3_600),
        }
    }
}

/// Transient role bindings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Transient {
    /// Roles that transient bindings may bind: NAME of a ClusterRole, NAMESPACE/NAME of a Role; both may end in `*`.
    /// cluster-admin, and roles that can be used to get more rights than they have or to keep them, only by their
    /// full name. Empty: transient bindings are disabled, and existing bindings end at their expiry.
    #[schemars(inner(regex(pattern = r"^[^,/\s]+(/[^,/\s]+)?$")), extend("uniqueItems" = true))]
    pub bindable_roles: Vec<Text<RolePattern>>,
    /// Maximum length of a window.
    pub max_binding_window: Positive,
    /// Maximum length of a window in single namespaces: {prod: 1h}.
    pub max_binding_window_by_namespace: BTreeMap<String, Positive>,
    /// Maximum time from the creation of a binding until its window opens: the groups of its requester are the groups
    /// at the creation.
    pub max_binding_lead: Positive,
    /// Maximum number of bindings of one user that wait for their windows to open; 0 for no limit.
    pub max_waiting_bindings: usize,
    /// Serve the published kinds TransientRoleBinding and TransientClusterRoleBinding of example.com/v1 as well. Their
    /// definitions must be installed.
    pub serve_example_com: bool,
}

impl Default for Transient {
    fn default() -> Self {
        Self {
            bindable_roles: Vec::new(),
            max_binding_window: Positive::seconds(24 * 3_600),
            max_binding_window_by_namespace: BTreeMap::new(),
            max_binding_lead: Positive::seconds(7 * 24 * 3_600),
            max_waiting_bindings: 20,
            serve_example_com: false,
        }
    }
}
