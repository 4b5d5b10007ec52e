//! Secrets with keys. The installation creates them empty, so that no process needs the right to
//! create Secrets; the first replica of a component that starts fills them.

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

/// The maximum number of attempts while other processes write at the same time.
const ATTEMPTS: u32 = 5;

/// The entries of the Secret.
pub type Data = BTreeMap<String, ByteString>;

/// The entries of one key in a Secret, which the replicas of a component share.
#[derive(Clone)]
pub struct SecretCell {
    client: Client,
    secrets: Api<Secret>,
    namespace: String,
    name: &'static str,
    /// The entries of the key. A Secret without the first has no key; the Secret may contain
    /// further entries.
    entries: &'static [&'static str],
    /// The annotation with the time at which the key was created.
    made_at: &'static str,
    /// True if a deleted Secret is created again.
    renewed: bool,
}

impl SecretCell {
    /// Returns the key with these entries in the Secret `name` in `namespace`; the annotation `made_at` contains the
    /// time at which the key was created. A Secret without the first of the entries has no key.
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

    /// Returns the same key, with a Secret that is created again after its deletion: this process
    /// may create a Secret of this name.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self {
            renewed: true,
            ..self
        }
    }

    /// Reads the Secret, and writes `fresh` into it if it does not contain the key; returns whether
    /// it did.
    ///
    /// # Errors
    /// When the Secret does not exist, can be neither read nor written, or is emptied again and
    /// again.
    pub async fn filled(
        &self,
        fresh: impl Fn() -> anyhow::Result<Data>,
    ) -> anyhow::Result<(Secret, bool)> {
        let name = self.name;
        let mut made = false;
        // Another process may fill the Secret between this read and this write; then its key is the
        // valid one.
        for _ in 0..ATTEMPTS {
            let found = self.secrets.get_opt(name).await;
            let found = found.with_context(|| format!("failed to read Secret {name}"))?;
            if found.is_none() && self.renewed {
                self.make_empty().await?;
                continue;
            }
            let Some(mut secret) = found else {
                bail!(
                    "Secret {name} is missing, and this process may not create Secrets: create an \
                     empty one, by upgrading the release, by applying deploy/rbac, or with \
                     `kubectl create secret generic {name} --namespace {}`",
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
        bail!("gave up after {ATTEMPTS} attempts: another client repeatedly empties Secret {name}")
    }

    /// Creates the Secret by server-side apply, which names its object, so that the required right is
    /// limited to this Secret. Entries that another process has written in between remain.
    /// See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>.
    async fn make_empty(&self) -> anyhow::Result<()> {
        let empty = Patch::Apply(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.name, "labels": { "app.kubernetes.io/name": "oz" } },
        }));
        let apply = PatchParams::apply("oz-keys").force();
        let made = self.secrets.patch(self.name, &apply, &empty);
        made.await
            .with_context(|| format!("failed to create Secret {} again", self.name))?;
        Ok(())
    }

    /// Returns the Secret, if its key is older than `life`.
    ///
    /// # Errors
    /// When the Secret cannot be read.
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

    /// Replaces the key in a Secret that was read; returns whether it did. Another process may have
    /// been faster; then its key is the valid one.
    ///
    /// # Errors
    /// When the Secret cannot be written.
    pub async fn replace(
        &self,
        mut secret: Secret,
        data: Data,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        self.put_in(&mut secret, data);
        self.put(secret, now).await
    }

    /// Writes the entries of this key into a Secret, and keeps the other entries.
    fn put_in(&self, secret: &mut Secret, data: Data) {
        let all = secret.data.get_or_insert_default();
        all.retain(|entry, _| !self.entries.contains(&entry.as_str()));
        all.extend(data);
    }

    /// Checks whether a Secret has no key yet.
    #[must_use]
    pub fn is_empty(&self, secret: &Secret) -> bool {
        let data = secret.data.as_ref();
        let has = |entry: &&str| data.is_some_and(|data| data.contains_key(*entry));
        !self.entries.first().is_some_and(has)
    }

    /// Writes the Secret and returns whether that succeeded: the resource version lets only one of
    /// several writers succeed.
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

    /// Returns the time at which the key was created.
    #[must_use]
    pub fn made(&self, secret: &Secret) -> Option<Timestamp> {
        let metadata = &secret.metadata;
        let said = metadata.annotations.as_ref();
        let said = said.and_then(|said| said.get(self.made_at)?.parse().ok());
        said.or(metadata.creation_timestamp.as_ref().map(|time| time.0))
    }

    /// Returns a watch of this one Secret.
    #[must_use]
    pub fn watch(&self) -> Retried<Secret> {
        let resource = ApiResource::erase::<Secret>(&());
        let this = Selection::with_name(self.name);
        guarded_watch(&self.client, &resource, Some(&self.namespace), this).0
    }
}

impl std::fmt::Display for SecretCell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
