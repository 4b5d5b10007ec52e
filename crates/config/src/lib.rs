//! `OzConfiguration`: the configuration of operator, webhook, gate and broker. The chart writes it into a ConfigMap,
//! each process reads it at its start, and `ozctl` reads the ConfigMap to explain decisions. Flags of a process
//! concern the process only, such as its addresses.

mod access;
mod args;
mod audit;
mod component;
mod composites;
mod gate;
mod harness;
mod load;
mod operator;
mod outbound;
mod settings;
#[cfg(test)]
mod tests;
mod values;
mod watch;
mod webhook;

use oz_core::tickets::Checks;
use oz_trail::notify::Routes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{Access, Installation, Log, LogFormat, Transient, Users};
pub use args::ConfigArgs;
pub use audit::{Audit, Collector, CollectorSecret, CollectorUrlError, Fsync, LogTarget};
pub use component::Component;
pub use composites::{Composites, HookServer};
pub use gate::{Gate, RecordingS3, RecordingSecret, Recordings, Spool, WebIdentity};
pub use harness::{Broker, Harness, PullPolicy};
pub use load::{ConfigError, DIGEST, Loaded};
pub use operator::Operator;
pub use outbound::{Outbound, ProxySecret};
pub use values::{AtMost, NotNegative, Number, Positive, Text};
pub use watch::ConfigWatch;
pub use webhook::{BreakGlassReview, RequestLimits, Service, Webhook};

/// The `apiVersion` of a configuration.
pub const API_VERSION: &str = "config.oz.wizardofoz.co/v1alpha1";
/// The `kind` of a configuration.
pub const KIND: &str = "OzConfiguration";
/// The key of the ConfigMap under which the configuration is stored.
pub const KEY: &str = "config.yaml";
/// The suffix of the name of the ConfigMap, after the name of the installation.
pub const CONFIG_MAP_SUFFIX: &str = "-configuration";

/// The configuration of an installation of oz.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct OzConfiguration {
    /// `config.oz.wizardofoz.co/v1alpha1`.
    pub api_version: ApiVersion,
    /// `OzConfiguration`.
    pub kind: Kind,
    /// The names of the installation.
    pub installation: Installation,
    /// Logs of all processes.
    pub log: Log,
    /// The way to servers outside the cluster.
    pub outbound: Outbound,
    /// Access to pods.
    pub access: Access,
    /// Transient role bindings.
    pub transient: Transient,
    /// Composites.
    pub composites: Composites,
    /// The audit trail.
    pub audit: Audit,
    /// Notifications about audit records, to chat, pagers or any server that accepts events.
    pub notifications: Routes,
    /// Ticket checks: the servers that the operator asks whether a change ticket is open.
    pub tickets: Checks,
    /// The operator.
    pub operator: Operator,
    /// The webhook.
    pub webhook: Webhook,
    /// The gate, which carries the sessions of templates with `sessions: Gate`.
    pub gate: Gate,
    /// Harness runs: AI agents in pods that are confined and terminate.
    pub harness: Harness,
}

/// The version of the configuration's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ApiVersion {
    /// The only version.
    #[default]
    #[serde(rename = "config.oz.wizardofoz.co/v1alpha1")]
    V1Alpha1,
}

/// The kind of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Kind {
    /// The only kind.
    #[default]
    OzConfiguration,
}
