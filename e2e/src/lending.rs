//! The objects with which a broker lends, without an operator and a webhook: a credential, the Secret with its value, and
//! the right to read it. The decision of [`Scene::pod_of_job`] permits the credential `KEY` of the policy `a`.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use oz_api::names;
use serde_json::{Value, json};

use crate::{NAMESPACE, Scene, apply_as};

/// The name of the credential.
pub const NAME: &str = "KEY";
/// The host of the credential.
pub const HOST: &str = "api.example.com";
/// The policy that grants it.
pub const POLICY: &str = "a";
/// The Secret with its value, in the key `one`.
pub const SECRET: &str = "keys";

/// Returns a credential from the key `one` of a Secret, for one host.
#[must_use]
pub fn credential(name: &str, secret: &str, host: &str) -> Value {
    json!({"name": name, "provider": {
        "kind": "UserSuppliedSecret", "secretRef": {"name": secret, "key": "one"},
        "deliveryMode": {"proxyInjected": {
            "hosts": [host], "header": {"name": "Authorization", "valuePrefix": "Bearer "},
        }},
    }})
}

/// Returns the grants of the credential [`NAME`] from the Secret [`SECRET`], and of its host.
#[must_use]
pub fn grants() -> Value {
    json!({"credentials": [credential(NAME, SECRET, HOST)], "egress": [{"host": HOST, "ports": [443]}]})
}

/// Writes a Secret with the key `one`.
///
/// # Errors
/// As the API server responds.
pub async fn set_secret(scene: &Scene, name: &str, value: &str) -> Result<()> {
    let secret = json!({"metadata": {"name": name}, "stringData": {"one": value}});
    apply_as(&scene.api::<Secret>(), secret).await.map(drop)
}

/// Permits the broker to read these Secrets, as the Role does that `ozctl run policy scaffold` prints.
///
/// # Errors
/// As the API server responds.
pub async fn permit_reads(scene: &Scene, secrets: &[&str]) -> Result<()> {
    let role = json!({"metadata": {"name": "broker-reads"}, "rules": [{
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get"],
    }]});
    apply_as(&scene.api::<Role>(), role).await?;
    let binding = json!({
        "metadata": {"name": "broker-reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "broker-reads"},
        "subjects": [{"kind": "ServiceAccount", "name": names::BROKER, "namespace": NAMESPACE}],
    });
    apply_as(&scene.api::<RoleBinding>(), binding)
        .await
        .map(drop)
}

impl Scene {
    /// Creates the Secret with this value, the right of the broker to read it, and the policy of [`grants`].
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn lend(&self, value: &str) -> Result<()> {
        set_secret(self, SECRET, value).await?;
        permit_reads(self, &[SECRET]).await?;
        self.lending_policy(POLICY, grants(), true).await
    }
}
