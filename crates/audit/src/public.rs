//! The Secrets with public keys. Only the owning component may write its Secret; the components that verify its
//! signatures read it. A changed public key allows forged signatures, so no verifier reads it from a ConfigMap.

use anyhow::bail;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use oz_runtime::{Guarded, Retried, Selection, StoreEvent, guarded_watch, within};
use serde_json::json;

/// The public keys of one component for seals, or for the audit trail.
pub(crate) struct PublicKeys {
    client: Client,
    secrets: Api<Secret>,
    namespace: String,
    name: &'static str,
    entry: &'static str,
}

impl PublicKeys {
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        name: &'static str,
        entry: &'static str,
    ) -> Self {
        Self {
            client: client.clone(),
            secrets: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            name,
            entry,
        }
    }

    /// Reads the Secret, if it exists.
    async fn find(&self) -> anyhow::Result<Option<Secret>> {
        let read = self.secrets.get_opt(self.name);
        Ok(within(read, || format!("failed to read Secret {self}")).await?)
    }

    /// Reads the published keys; `None` if there are none.
    pub(crate) async fn read(&self) -> anyhow::Result<Option<String>> {
        let found = self.find().await?;
        Ok(found.as_ref().and_then(|secret| self.published_in(secret)))
    }

    /// Publishes these keys if they are not published yet.
    pub(crate) async fn publish(&self, keys: &str) -> anyhow::Result<()> {
        let name = self.name;
        let Some(found) = self.find().await? else {
            bail!(
                "Secret {name} is missing, and this process may not create Secrets: create an \
                 empty one, by upgrading the release, by applying deploy/rbac, or with `kubectl \
                 create secret generic {name} --namespace {}`",
                self.namespace
            );
        };
        if self.published_in(&found).as_deref() == Some(keys) {
            return Ok(());
        }
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name },
            "data": { self.entry: ByteString(keys.as_bytes().to_vec()) },
        });
        // Each entry has a separate field manager: an apply removes the entries that its manager leaves out.
        let apply = PatchParams::apply(&format!("oz-{}-keys", self.entry)).force();
        let patch = Patch::Apply(secret);
        let published = self.secrets.patch(name, &apply, &patch);
        within(published, || {
            format!("failed to publish keys in Secret {self}")
        })
        .await?;
        Ok(())
    }

    pub(crate) fn watch(&self) -> Retried<Secret> {
        let resource = ApiResource::erase::<Secret>(&());
        let this = Selection::with_name(self.name);
        guarded_watch(&self.client, &resource, Some(&self.namespace), this).0
    }

    pub(crate) fn published_in(&self, secret: &Secret) -> Option<String> {
        let entry = secret.data.as_ref()?.get(self.entry)?;
        let text = String::from_utf8(entry.0.clone()).ok()?;
        (!text.trim().is_empty()).then_some(text)
    }

    /// Returns the published keys after an event; the outer `None` if the event does not change them. While the Secret
    /// does not exist, the published keys stay in use; a new Secret arrives as a separate event.
    pub(crate) fn said(
        &self,
        event: StoreEvent<Guarded<Secret>>,
    ) -> Option<anyhow::Result<Option<String>>> {
        match event {
            StoreEvent::Apply(secret) | StoreEvent::InitApply(secret) => Some(match secret.0 {
                Ok(secret) => Ok(self.published_in(&secret)),
                Err(undecodable) => Err(undecodable.into()),
            }),
            StoreEvent::Delete(_) => {
                tracing::error!(
                    secret = %self,
                    "the Secret with public keys does not exist; the keys published before stay in \
                        use until it is created again"
                );
                None
            }
            StoreEvent::Init | StoreEvent::InitDone => None,
        }
    }
}

impl std::fmt::Display for PublicKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
