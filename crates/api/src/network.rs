//! `network` of a PodAccessTemplate: the connections that the access pod may open and accept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permitted connections of a dedicated pod. oz creates a NetworkPolicy; the cluster's network plug-in must
/// enforce it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Connections that the pod may open. All: to any destination. Dns: only to the cluster's name servers.
    /// None: no connections.
    #[serde(default)]
    pub egress: Egress,

    /// Connections that the pod accepts. All: from any source. None: no connections.
    #[serde(default)]
    pub ingress: Ingress,
}

/// The connections that a dedicated pod may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Egress {
    /// Connections to any destination.
    #[default]
    All,
    /// Connections to the cluster's name servers only.
    Dns,
    /// No connections.
    None,
}

/// The connections that a dedicated pod accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Ingress {
    /// Connections from any source.
    #[default]
    All,
    /// No connections.
    None,
}
