//! Secrets with keys. The installation makes them empty, so that no process needs the right to create
//! Secrets; whichever replica of their component starts first fills them.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::json;

use crate::{Retried, Selection, guarded_watch};

/// How often to look again when others write at the same time.
const ATTEMPTS: u32 = 5;

/// What the Secret holds.
pub type Data = BTreeMap<String, ByteString>;

/// The entries of one key in a Secret, which the replicas of a component share.
#[derive(Clone)]
pub struct SecretCell {
    client: Client,
    secrets: Api<Secret>,
    namespace: String,
    name: &'static str,
    /// Without the first, there is no key; others may be there besides.
    entries: &'static [&'static str],
    /// Annotation: when the key was made.
    made_at: &'static str,
    /// Whether one that was deleted is made again.
    renewed: bool,
}

impl SecretCell {
    /// The key with these entries in the Secret `name` in `namespace`; the annotation `made_at` says when it was made. Without the
    /// first of the entries, there is no key.
    #[must_use]
    pub fn new(
        client: &Client,
        namespace: &str,
        name: &'static str,
        entries: &'static [&'static str],
        made_at: &'static str,
    ) -> Self {
        Self {
            client: client.clone(),
            secrets: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            name,
            entries,
            made_at,
            renewed: false,
        }
    }

    /// The same, made again where it was deleted: this process may create a Secret of this name.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self {
            renewed: true,
            ..self
        }
    }

    /// Reads the Secret, and puts `fresh` into it if the key is not in it; says whether it did.
    ///
    /// # Errors
    /// When it is missing, can be neither read nor written, or is emptied again and again.
    pub async fn filled(
        &self,
        fresh: impl Fn() -> anyhow::Result<Data>,
    ) -> anyhow::Result<(Secret, bool)> {
        let name = self.name;
        let mut made = false;
        // Another process may fill it between our look and our try, and then is right.
        for _ in 0..ATTEMPTS {
            let found = self.secrets.get_opt(name).await;
            let found = found.with_context(|| format!("failed to read Secret {name}"))?;
            if found.is_none() && self.renewed {
                self.make_empty().await?;
                continue;
            }
            let Some(mut secret) = found else {
                bail!(
                    "Secret {name} is missing, and this process may not create Secrets: make an empty \
                     one, by upgrading the release, by applying deploy/rbac, or with `kubectl create \
                     secret generic {name} --namespace {}`",
                    self.namespace
                );
            };
            if !self.is_empty(&secret) {
                if made {
                    tracing::info!(secret = %format!("{}/{name}", self.namespace), "made a key");
                }
                return Ok((secret, made));
            }
            self.put_in(&mut secret, fresh()?);
            made = self.put(secret, Timestamp::now()).await?;
        }
        bail!(
            "gave up after {ATTEMPTS} attempts: Secret {name} is emptied again and again by another client"
        )
    }

    /// By server-side apply, which names what it makes, so that the right to it is one to this Secret. What
    /// another process has put into it meanwhile stays.
    async fn make_empty(&self) -> anyhow::Result<()> {
        let empty = Patch::Apply(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.name, "labels": { "app.kubernetes.io/name": "oz" } },
        }));
        let apply = PatchParams::apply("oz-keys").force();
        let made = self.secrets.patch(self.name, &apply, &empty);
        made.await
            .with_context(|| format!("failed to make Secret {} again", self.name))?;
        Ok(())
    }

    /// The Secret, if its key is older than `life`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn older(
        &self,
        life: SignedDuration,
        now: Timestamp,
    ) -> anyhow::Result<Option<Secret>> {
        let secret = self.secrets.get(self.name).await?;
        let made = self.made(&secret);
        Ok(made
            .is_some_and(|made| now.duration_since(made) >= life)
            .then_some(secret))
    }

    /// Puts another key into a Secret that was read; says whether it did. Another process may have been
    /// faster, and then is right.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn replace(
        &self,
        mut secret: Secret,
        data: Data,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        self.put_in(&mut secret, data);
        self.put(secret, now).await
    }

    /// Puts the entries of this key into a Secret, and leaves what else is there.
    fn put_in(&self, secret: &mut Secret, data: Data) {
        let all = secret.data.get_or_insert_default();
        all.retain(|entry, _| !self.entries.contains(&entry.as_str()));
        all.extend(data);
    }

    /// Whether a Secret waits for this key.
    #[must_use]
    pub fn is_empty(&self, secret: &Secret) -> bool {
        let data = secret.data.as_ref();
        let has = |entry: &&str| data.is_some_and(|data| data.contains_key(*entry));
        !self.entries.first().is_some_and(has)
    }

    /// Whether the write went through: the resource version lets only one of several win.
    async fn put(&self, mut secret: Secret, now: Timestamp) -> anyhow::Result<bool> {
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(self.made_at.to_owned(), now.to_string());
        let parameters = PostParams::default();
        let written = self.secrets.replace(self.name, &parameters, &secret);
        match written.await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("failed to write Secret {}", self.name))
            }
        }
    }

    /// When the key was made.
    #[must_use]
    pub fn made(&self, secret: &Secret) -> Option<Timestamp> {
        let metadata = &secret.metadata;
        let said = metadata.annotations.as_ref();
        let said = said.and_then(|said| said.get(self.made_at)?.parse().ok());
        said.or(metadata.creation_timestamp.as_ref().map(|time| time.0))
    }

    /// A watch of this one Secret.
    #[must_use]
    pub fn watch(&self) -> Retried<Secret> {
        let resource = ApiResource::erase::<Secret>(&());
        let this = Selection::named(self.name);
        guarded_watch(&self.client, &resource, Some(&self.namespace), this).0
    }
}

impl std::fmt::Display for SecretCell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
