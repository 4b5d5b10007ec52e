//! The label of the namespaces of hooks: the manager sets it and maintains it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use oz_runtime::Selection;
use serde_json::json;

use super::{apply::Error, namespace_label};

/// The namespaces that carry the label of one product.
pub(crate) struct Namespaces {
    api: Api<Namespace>,
    client: Client,
    fingerprint: String,
    /// The names; the value is true if the namespace is optional.
    names: BTreeMap<String, bool>,
}

impl Namespaces {
    pub(crate) fn new(client: Client, fingerprint: &str, names: BTreeMap<String, bool>) -> Self {
        Self {
            api: Api::all(client.clone()),
            client,
            fingerprint: fingerprint.to_owned(),
            names,
        }
    }

    /// Sets the label on all namespaces without it.
    ///
    /// # Errors
    /// The first namespace that is missing or cannot be labelled, after all others were handled.
    pub(crate) async fn ensure(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (name, optional) in &self.names {
            let one = match self.label(name).await {
                Ok(true) => Ok(()),
                Ok(false) if *optional => Ok(()),
                Ok(false) => Err(Error::NamespaceMissing(name.clone())),
                Err(source) => Err(Error::Api {
                    verb: "label",
                    kind: "Namespace",
                    name: name.clone(),
                    source: Box::new(source),
                }),
            };
            outcome = outcome.and(one);
        }
        outcome
    }

    /// Sets the label. Returns `false` if the namespace does not exist.
    async fn label(&self, name: &str) -> Result<bool, kube::Error> {
        let label = namespace_label(&self.fingerprint);
        let Some(found) = self.api.get_metadata_opt(name).await? else {
            return Ok(false);
        };
        if found.labels().get(&label).is_some_and(|it| it == "true") {
            return Ok(true);
        }
        let parameters = PatchParams {
            field_manager: Some(self.fingerprint.clone()),
            ..PatchParams::default()
        };
        // An apply would create a namespace that was deleted in the meantime.
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: "true"}}}));
        match self.api.patch_metadata(name, &parameters, &patch).await {
            Ok(_) => {
                tracing::info!(namespace = name, "labelled a namespace");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Yields after each possible change of one of the namespaces.
    pub(crate) fn changes(&self) -> impl futures::Stream<Item = ()> + Send + use<> {
        let watches = self.names.keys().map(|name| {
            let this = Selection::with_name(name);
            Box::pin(crate::watch::touched::<Namespace>(&self.client, None, this))
        });
        futures::stream::select_all(watches)
    }
}
