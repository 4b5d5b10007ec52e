//! The signing keys of the audit trail. Each component reads its private key from a Secret that no other component may
//! read; the first replica creates the key. Auditors pin the public key of the operator. It is published in a
//! ConfigMap, with the public keys of the other writers, which the operator's key vouches for. Each writer publishes
//! its public key in a Secret that no other component may write.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_api::labels;
use oz_api::names::{self, AUDIT_ENTRY, AUDIT_KEY, AUDIT_PUBLIC_KEYS};
use oz_runtime::{Data, SecretCell};
use oz_trail::{AuditKey, Published};

use crate::public::PublicKeys;

/// The entry of the operator's Secret with the key.
const KEY: &str = "key";
/// Annotation: the creation time of the operator's key, which has a separate Secret.
const MADE_AT: &str = "oz.wizardofoz.co/key-created-at";
/// Annotation: the creation time of another writer's key, in the Secret that also holds its sealing key.
const AUDIT_KEY_MADE_AT: &str = "oz.wizardofoz.co/audit-key-created-at";

/// The location of the key of one writer.
#[derive(Clone)]
pub(crate) struct WriterKeys {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    component: &'static str,
    /// The names of the Secrets of the writer.
    private: &'static str,
    public: &'static str,
}

impl WriterKeys {
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        component: &'static str,
    ) -> anyhow::Result<Self> {
        let secrets = names::key_secrets(component);
        let (private, public) = secrets.with_context(|| {
            format!("failed to find the keys of {component}: it has no Secrets")
        })?;
        Ok(Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            component,
            private,
            public,
        })
    }

    /// Checks whether the writer is the operator. Its key vouches for the other keys.
    pub(crate) fn is_operator(&self) -> bool {
        self.component == names::OPERATOR
    }

    pub(crate) fn component(&self) -> &'static str {
        self.component
    }

    /// Returns the name of the entry with the key.
    fn entry(&self) -> &'static str {
        match self.is_operator() {
            true => KEY,
            false => AUDIT_ENTRY,
        }
    }

    /// Returns the Secret with the key.
    pub(crate) fn cell(&self) -> SecretCell {
        let (client, namespace) = (&self.client, &self.namespace);
        match self.is_operator() {
            true => SecretCell::new(client, namespace, AUDIT_KEY, &[KEY], MADE_AT).renewed(),
            false => {
                let entries = &[AUDIT_ENTRY];
                SecretCell::new(client, namespace, self.private, entries, AUDIT_KEY_MADE_AT)
            }
        }
    }

    /// Returns the Secret in which the public key is published.
    pub(crate) fn public(&self) -> PublicKeys {
        PublicKeys::new(&self.client, &self.namespace, self.public, AUDIT_ENTRY)
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Publishes a key if it is not published yet; `before` vouches for a key of the operator.
    pub(crate) async fn publish(
        &self,
        key: &AuditKey,
        before: Option<&AuditKey>,
    ) -> anyhow::Result<()> {
        if self.is_operator() {
            publish(&self.maps(), key, before).await?;
        }
        self.public().publish(&key.public()).await
    }

    /// Publishes a key of the operator before its first signature; `before` vouches for it.
    pub(crate) async fn publish_vouched(
        &self,
        key: &AuditKey,
        before: Option<&AuditKey>,
    ) -> anyhow::Result<()> {
        publish(&self.maps(), key, before).await
    }

    /// Returns the key in a Secret.
    pub(crate) fn key_in(&self, secret: &Secret) -> anyhow::Result<AuditKey> {
        let entry = self.entry();
        let data = secret.data.as_ref().context("it has no data")?;
        let key = data
            .get(entry)
            .with_context(|| format!("it has no entry {entry}"))?;
        let bytes = <&[u8; AuditKey::BYTES]>::try_from(key.0.as_slice())
            .with_context(|| format!("its entry {entry} is not {} bytes long", AuditKey::BYTES))?;
        Ok(AuditKey::new(bytes))
    }

    /// Returns the data of the Secret for a key.
    pub(crate) fn data(&self, key: &[u8; AuditKey::BYTES]) -> Data {
        Data::from([(self.entry().to_owned(), ByteString(key.to_vec()))])
    }

    /// Returns the data of a new key.
    pub(crate) fn fresh(&self) -> anyhow::Result<Data> {
        Ok(self.data(&random()?))
    }
}

/// Reads the key, or creates the first one. Returns whether it was created.
pub(crate) async fn signing_key(keys: &WriterKeys) -> anyhow::Result<(AuditKey, bool)> {
    let cell = keys.cell();
    let (secret, made) = cell.filled(|| keys.fresh()).await?;
    let key = keys.key_in(&secret).with_context(|| {
        format!(
            "failed to use Secret {cell}; empty it to create a new key (auditors must then pin the \
             operator's key as well)"
        )
    })?;
    keys.publish(&key, None).await?;
    Ok((key, made))
}

/// Publishes a key of the operator if it is not published yet; `before` vouches for it.
async fn publish(
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
    let is_there =
        entry.is_some_and(|entry| entry.public_key == key.public() && entry.writer.is_none());
    if is_there && before.is_none() {
        return Ok(());
    }
    let text = serde_json::to_string(&key.published(before))?;
    publish_entry(maps, key.id(), text).await
}

/// Publishes the entry of one key.
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
    // Each key has a separate field manager: an apply removes the entries that its manager leaves out, and old keys
    // must stay.
    let apply = PatchParams::apply(&format!("oz-audit-key/{id}")).force();
    maps.patch(AUDIT_PUBLIC_KEYS, &apply, &Patch::Apply(&map))
        .await
        .with_context(|| {
            format!("failed to publish the audit key in ConfigMap {AUDIT_PUBLIC_KEYS}")
        })?;
    Ok(())
}

pub(crate) fn random() -> anyhow::Result<[u8; AuditKey::BYTES]> {
    let mut bytes = [0; AuditKey::BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("failed to get random bytes"))?;
    Ok(bytes)
}

/// Returns a random number that distinguishes two chains that begin within one second.
pub(crate) fn nonce() -> anyhow::Result<u32> {
    let [a, b, c, d, ..] = random()?;
    Ok(u32::from_be_bytes([a, b, c, d]))
}
