//! The objects of a namespace with agents: the Secret with the key, the right of the broker to read it, the policy and
//! the template.

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use oz_api::harness::{BrokerPolicy, HarnessTemplate};
use oz_api::names;
use serde_json::json;

use super::{AGENT, CREDENTIAL};
use crate::{NAMESPACE, Scene, apply_as};

/// Methods for the objects of agents.
impl Scene {
    /// Stores the key of Claude's API, with a line break at its end, as `echo` writes it.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn agent_key(&self, key: &str) -> Result<()> {
        let key = ByteString(format!("{key}\n").into_bytes());
        let secret = json!({"metadata": {"name": AGENT}, "data": {"key": key}});
        apply_as(&self.api::<Secret>(), secret).await.map(drop)
    }

    /// Permits the broker to read the Secret, as `ozctl run policy scaffold` prints it.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn let_broker_read(&self) -> Result<()> {
        let role = json!({"metadata": {"name": "oz-broker-secrets"}, "rules": [{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [AGENT], "verbs": ["get"],
        }]});
        apply_as(&self.api::<Role>(), role).await?;
        let binding = json!({
            "metadata": {"name": "oz-broker-secrets"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "oz-broker-secrets",
            },
            "subjects": [{"kind": "ServiceAccount", "name": names::BROKER, "namespace": NAMESPACE}],
        });
        apply_as(&self.api::<RoleBinding>(), binding)
            .await
            .map(drop)
    }

    /// Applies the policy of the template: the key, and these hosts on port 443.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn agent_policy(&self, hosts: &[&str]) -> Result<BrokerPolicy> {
        let egress = hosts
            .iter()
            .map(|host| json!({"host": host, "ports": [443]}));
        let policy = json!({
            "metadata": {"name": AGENT},
            "spec": {
                "appliesToTemplates": [AGENT],
                "grants": {
                    "credentials": [{"name": CREDENTIAL, "provider": {
                        "kind": "AnthropicAPI", "secretRef": {"name": AGENT, "key": "key"},
                    }}],
                    "egress": egress.collect::<Vec<_>>(),
                },
            },
        });
        apply_as(&self.api::<BrokerPolicy>(), policy).await
    }

    /// Applies the template with this image and command. It requires the key and these hosts.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn agent_template(
        &self,
        image: &str,
        command: &[&str],
        hosts: &[&str],
        credentials: &[&str],
    ) -> Result<()> {
        let egress = hosts
            .iter()
            .map(|host| json!({"host": host, "ports": [443]}));
        let credentials = credentials.iter().map(|name| json!({"name": name}));
        let template = json!({
            "metadata": {"name": AGENT},
            "spec": {
                "harness": "agent",
                "image": image,
                "command": command,
                "defaults": {"timeout": "20m", "terminationGracePeriodSeconds": 1},
                "requires": {
                    "credentials": credentials.collect::<Vec<_>>(),
                    "egress": egress.collect::<Vec<_>>(),
                },
                "workspace": {"required": false, "mountPath": "/workspace"},
            },
        });
        apply_as(&self.api::<HarnessTemplate>(), template)
            .await
            .map(drop)
    }
}
