//! `network` of a PodAccessTemplate: the connections that the access pod may open and accept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whom an access pod can talk to. Enforced by a NetworkPolicy, if the cluster's network does that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Where the pod can connect to. All: anywhere. Dns: name servers only. None: nowhere.
    #[serde(default)]
    pub egress: Egress,

    /// Who can connect to the pod. All: anyone. None: nobody.
    #[serde(default)]
    pub ingress: Ingress,
}

/// Where an access pod can connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Egress {
    /// Anywhere.
    #[default]
    All,
    /// Name servers only.
    Dns,
    /// Nowhere.
    None,
}

/// Who can connect to an access pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Ingress {
    /// Anyone.
    #[default]
    All,
    /// Nobody.
    None,
}
