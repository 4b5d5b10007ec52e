//! The key that seals stamps and grants, in a Secret that whichever process starts first creates.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use oz_core::access::seal::Keys;
use oz_core::labels;

/// Name of the Secret.
const NAME: &str = "oz-signing-key";
/// The key that seals.
const CURRENT: &str = "key";
/// The key before it, which still opens what it sealed.
const PREVIOUS: &str = "previous";

/// Reads the signing keys, or makes the first one.
///
/// # Errors
/// When the Secret can be neither read nor created, or holds no usable key.
pub async fn signing_keys(client: &Client, namespace: &str) -> anyhow::Result<Keys> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    // Another process may create it between our look and our try, and then is right.
    for _ in 0..5 {
        let found = secrets
            .get_opt(NAME)
            .await
            .with_context(|| format!("failed to read Secret {namespace}/{NAME}"))?;
        if let Some(secret) = found {
            return keys(&secret).with_context(|| {
                format!(
                    "failed to use Secret {namespace}/{NAME}; delete it to have a new key made \
                     (requests that wait for a grant must then be created again)"
                )
            });
        }
        match secrets
            .create(&PostParams::default(), &fresh(namespace)?)
            .await
        {
            Ok(_) => {
                tracing::info!(secret = %format!("{namespace}/{NAME}"), "made the signing key")
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("failed to create Secret {namespace}/{NAME}"));
            }
        }
    }
    bail!("failed to settle on a signing key: Secret {namespace}/{NAME} comes and goes")
}

fn keys(secret: &Secret) -> anyhow::Result<Keys> {
    let data = secret.data.as_ref().context("it has no data")?;
    let current = data
        .get(CURRENT)
        .with_context(|| format!("it has no entry {CURRENT}"))?;
    let previous = data.get(PREVIOUS);
    Ok(Keys::new(
        std::iter::once(current)
            .chain(previous)
            .map(|key| key.0.clone())
            .collect(),
    )?)
}

fn fresh(namespace: &str) -> anyhow::Result<Secret> {
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::MANAGED_BY.to_owned(),
                labels::OZ.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            CURRENT.to_owned(),
            ByteString(random()?),
        )])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

fn random() -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; Keys::MIN_BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("failed to get random bytes"))?;
    Ok(bytes)
}
