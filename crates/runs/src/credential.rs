//! A credential of a run, from the decision about the run.

use oz_api::harness::{DeliveryName, ProviderKind, SecretKey};
use serde::{Deserialize, Serialize};

/// A credential of a run, and its delivery: fixed when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedCredential {
    /// The name, which is that of the agent's variable as well.
    pub name: String,
    /// The name of the BrokerPolicy that granted it.
    pub policy: String,
    /// The provider.
    pub provider: ProviderKind,
    /// The place of its value: with the proxy, or with the agent.
    pub delivery: DeliveryName,
    /// The Secret with the value.
    pub secret: SecretKey,
    /// The hosts to which the proxy sends it, in the form of [`Hosts`](oz_api::harness::Hosts).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The reason for which the agent has the value, in the words of the policy's author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_container_reason: Option<String>,
}

impl DecidedCredential {
    /// Checks whether the proxy puts the value into requests, so that the agent has a placeholder only.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        self.delivery == DeliveryName::ProxyInjected
    }
}
