//! The objects of grants and of oz itself that remain in a cluster: none, once oz is uninstalled.

use std::fmt::Debug;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_api::labels::OWNER_UID;
use oz_api::{
    ExecAccessRequest, PodAccessRequest, TransientClusterRoleBinding, TransientRoleBinding,
};
use serde::de::DeserializeOwned;

use crate::NAMESPACE;

/// Returns the kind, namespace and name of each remaining object: grants and their requests in all
/// namespaces, and objects that oz created for itself. Objects of a chart, templates and records are not
/// included.
///
/// # Errors
/// When the API server does not respond.
pub async fn left(client: &Client) -> Result<Vec<String>> {
    let mut left = Vec::new();
    list::<RoleBinding>(client, OWNER_UID, &mut left).await?;
    list::<ClusterRoleBinding>(client, OWNER_UID, &mut left).await?;
    list::<Pod>(client, OWNER_UID, &mut left).await?;
    list::<NetworkPolicy>(client, OWNER_UID, &mut left).await?;
    list::<Job>(client, OWNER_UID, &mut left).await?;
    list::<Role>(client, OWNER_UID, &mut left).await?;
    list::<ExecAccessRequest>(client, "", &mut left).await?;
    list::<PodAccessRequest>(client, "", &mut left).await?;
    list::<TransientRoleBinding>(client, "", &mut left).await?;
    list::<TransientClusterRoleBinding>(client, "", &mut left).await?;
    let own = [
        "oz",
        "oz-webhook-key",
        "oz-webhook-public-keys",
        "oz-operator-key",
        "oz-operator-public-keys",
        "oz-admission-ca",
        "9b20101a.wizardofoz.co",
    ];
    let mut made = Vec::new();
    list::<MutatingWebhookConfiguration>(client, "", &mut made).await?;
    list::<ValidatingWebhookConfiguration>(client, "", &mut made).await?;
    list::<Secret>(client, "", &mut made).await?;
    list::<Lease>(client, "", &mut made).await?;
    let is_ours = |object: &String| {
        let mut words = object.split(' ').skip(1);
        let (namespace, name) = (words.next(), words.next().unwrap_or_default());
        (namespace == Some("-") || namespace == Some(NAMESPACE)) && own.contains(&name)
    };
    left.extend(made.into_iter().filter(is_ours));
    Ok(left)
}

async fn list<K>(client: &Client, labels: &str, found: &mut Vec<String>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let listed = Api::<K>::all(client.clone())
        .list_metadata(&ListParams::default().labels(labels))
        .await
        .with_context(|| format!("failed to list {kind}"))?;
    found.extend(listed.items.into_iter().map(|object| {
        let namespace = object.namespace();
        let namespace = namespace.as_deref().unwrap_or("-");
        format!("{kind} {namespace} {}", object.name_any())
    }));
    Ok(())
}
