//! Secrets with keys. The installation makes them empty, so that no process needs the right to create
//! Secrets; whichever process starts first fills them.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;

/// Annotation: when the key was made.
pub const MADE: &str = "oz.wizardofoz.co/key-made-at";
/// How often to look again when others write at the same time.
const ATTEMPTS: u32 = 5;

/// Reads the Secret of this name, and fills it with `fresh` if nothing is in it; says whether it did.
pub async fn filled(
    secrets: &Api<Secret>,
    name: &str,
    fresh: impl Fn() -> anyhow::Result<BTreeMap<String, ByteString>>,
) -> anyhow::Result<(Secret, bool)> {
    let mut made = false;
    // Another process may fill it between our look and our try, and then is right.
    for _ in 0..ATTEMPTS {
        let found = secrets
            .get_opt(name)
            .await
            .with_context(|| format!("failed to read Secret {name}"))?;
        let Some(mut secret) = found else {
            bail!(
                "Secret {name} is missing, and oz may not create Secrets: make an empty one, by \
                 upgrading the release, by applying deploy/rbac, or with \
                 `kubectl create secret generic {name}` in oz's namespace"
            );
        };
        if !is_empty(&secret) {
            return Ok((secret, made));
        }
        secret.data = Some(fresh()?);
        made_at(&mut secret, Timestamp::now());
        match secrets.replace(name, &PostParams::default(), &secret).await {
            Ok(_) => made = true,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => made = false,
            Err(error) => {
                return Err(error).with_context(|| format!("failed to fill Secret {name}"));
            }
        }
    }
    bail!(
        "gave up after {ATTEMPTS} attempts: Secret {name} is emptied again and again by another client"
    )
}

/// Whether it waits for a key.
pub fn is_empty(secret: &Secret) -> bool {
    secret.data.as_ref().is_none_or(BTreeMap::is_empty)
}

/// Writes down when the key was made.
pub fn made_at(secret: &mut Secret, now: Timestamp) {
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(MADE.to_owned(), now.to_string());
}

/// When the key was made.
pub fn made(secret: &Secret) -> Option<Timestamp> {
    let metadata = &secret.metadata;
    let said = metadata.annotations.as_ref();
    let said = said.and_then(|said| said.get(MADE)?.parse().ok());
    said.or(metadata.creation_timestamp.as_ref().map(|time| time.0))
}
