//! The key that signs the trail: its secret part in a Secret that whichever process starts first
//! fills, its public part in a ConfigMap that auditors read.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_core::audit::{AuditKey, Published};
use oz_core::labels;
use oz_core::names::{AUDIT_KEY, AUDIT_PUBLIC_KEYS};
use oz_runtime::{Data, SecretCell};

/// The entry with the key.
const KEY: &str = "key";

/// The Secret with the key.
pub(crate) fn cell(client: &Client, namespace: &str) -> SecretCell {
    SecretCell::new(client, namespace, AUDIT_KEY, crate::signing_key::MADE_AT).renewed()
}

/// Reads the key, or makes the first one; says whether it did.
pub(crate) async fn signing_key(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<(AuditKey, bool)> {
    let fresh = || Ok(data(&random()?));
    let (secret, made) = cell(client, namespace).filled(fresh).await?;
    let key = key_in(&secret).with_context(|| {
        format!(
            "failed to use Secret {namespace}/{AUDIT_KEY}; empty it to have a new key made \
             (auditors must then pin that one as well)"
        )
    })?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    publish(&maps, &key, None).await?;
    Ok((key, made))
}

/// Publishes a key unless it is published; `before` vouches for it.
pub(crate) async fn publish(
    maps: &Api<ConfigMap>,
    key: &AuditKey,
    before: Option<&AuditKey>,
) -> anyhow::Result<()> {
    let context = || format!("failed to publish the audit key in ConfigMap {AUDIT_PUBLIC_KEYS}");
    let there = maps
        .get_opt(AUDIT_PUBLIC_KEYS)
        .await
        .with_context(context)?;
    let entry = there
        .and_then(|map| map.data)
        .and_then(|mut data| data.remove(key.id()))
        .and_then(|text| serde_json::from_str::<Published>(&text).ok());
    if entry.is_some_and(|entry| entry.public_key == key.public()) && before.is_none() {
        return Ok(());
    }
    let text = serde_json::to_string(&key.published(before))?;
    publish_entry(maps, key.id(), text).await
}

/// Publishes what is said of one key.
pub(crate) async fn publish_entry(
    maps: &Api<ConfigMap>,
    id: &str,
    text: String,
) -> anyhow::Result<()> {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(AUDIT_PUBLIC_KEYS.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::MANAGED_BY.to_owned(),
                labels::OZ.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(id.to_owned(), text)])),
        ..ConfigMap::default()
    };
    // A manager of its own for each key: an apply takes away what its manager leaves out, and old
    // keys must stay.
    let apply = PatchParams::apply(&format!("oz-audit-key/{id}")).force();
    maps.patch(AUDIT_PUBLIC_KEYS, &apply, &Patch::Apply(&map))
        .await
        .with_context(|| {
            format!("failed to publish the audit key in ConfigMap {AUDIT_PUBLIC_KEYS}")
        })?;
    Ok(())
}

pub(crate) fn key_in(secret: &Secret) -> anyhow::Result<AuditKey> {
    let data = secret.data.as_ref().context("it has no data")?;
    let key = data
        .get(KEY)
        .with_context(|| format!("it has no entry {KEY}"))?;
    let bytes = <&[u8; AuditKey::BYTES]>::try_from(key.0.as_slice())
        .with_context(|| format!("its entry {KEY} is not {} bytes long", AuditKey::BYTES))?;
    Ok(AuditKey::new(bytes))
}

/// What the Secret holds.
pub(crate) fn data(key: &[u8; AuditKey::BYTES]) -> Data {
    Data::from([(KEY.to_owned(), ByteString(key.to_vec()))])
}

pub(crate) fn random() -> anyhow::Result<[u8; AuditKey::BYTES]> {
    let mut bytes = [0; AuditKey::BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("failed to get random bytes"))?;
    Ok(bytes)
}

/// What keeps two chains that begin within one second apart.
pub(crate) fn nonce() -> anyhow::Result<u32> {
    let [a, b, c, d, ..] = random()?;
    Ok(u32::from_be_bytes([a, b, c, d]))
}
