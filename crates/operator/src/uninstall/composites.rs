//! The composites with a finalizer: their children may end, or their parents wait for them. After
//! their deletion, the operator ends the children that end and releases the parents. This module
//! performs the steps that no operator performed, as the account of composites.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::{Api, Client, Config};
use oz_api::composite::CompositeController;
use oz_api::rego::RegoController;
use oz_composites::declared::{Declared, KindName};
use oz_composites::supervise::FINALIZER;
use oz_composites::{Account, Source, ends};

use super::objects::{finalizers, release, unless_missing};

/// The composites of an installation.
pub(super) struct Composites {
    client: Client,
    /// The client with which parents and children are read and written; `None` if composites do not
    /// run.
    account: Option<Client>,
}

impl Composites {
    pub(super) fn new(
        client: Client,
        mut config: Config,
        account: Option<&Account>,
    ) -> Result<Self> {
        let account = account.map(|account| {
            config.auth_info.impersonate = Some(account.user());
            oz_runtime::client(config).map(|(client, _)| client)
        });
        Ok(Self {
            client,
            account: account.transpose()?,
        })
    }

    /// Deletes the composites with a finalizer, and returns their number.
    pub(super) async fn delete(&self) -> Result<usize> {
        Ok(self.delete_of::<CompositeController>().await?
            + self.delete_of::<RegoController>().await?)
    }

    async fn delete_of<S: Source>(&self) -> Result<usize> {
        let api = Api::<S>::all(self.client.clone());
        let held = self.held::<S>().await?;
        for composite in &held {
            let name = name_of(composite.meta());
            if composite.meta().deletion_timestamp.is_some() {
                continue;
            }
            unless_missing(api.delete(name, &DeleteParams::default()).await)
                .with_context(|| format!("failed to delete {} {name}", S::NAME))?;
        }
        Ok(held.len())
    }

    /// Ends the children that end, releases the parents, and then the composites, without an
    /// operator.
    pub(super) async fn let_go(&self) -> Result<()> {
        self.let_go_of::<CompositeController>().await?;
        self.let_go_of::<RegoController>().await
    }

    async fn let_go_of<S: Source>(&self) -> Result<()> {
        for composite in self.held::<S>().await? {
            let name = name_of(composite.meta());
            tracing::warn!(kind = S::NAME, name, "ending without the operator");
            if let (Some(declared), Some(client)) = (composite.readable(), &self.account)
                && let Err(error) = end(client, &declared).await
            {
                // The account may have lost a right, which is no longer restored.
                let finalizer = &declared.finalizer;
                let parents = declared.parent.to_string();
                tracing::error!(
                    kind = S::NAME,
                    name,
                    parents,
                    finalizer,
                    error = format!("{error:#}"),
                    "parents may be left that keep this finalizer: take it off them"
                );
            }
            let api = Api::<S>::all(self.client.clone());
            release(&api, composite.meta(), FINALIZER).await?;
        }
        Ok(())
    }

    /// Returns the composites with oz's finalizer; empty if the kind is not installed.
    async fn held<S: Source>(&self) -> Result<Vec<S>> {
        let all = Api::<S>::all(self.client.clone());
        let listed = unless_missing(all.list(&ListParams::default()).await)
            .with_context(|| format!("failed to list {}", S::plural(&())))?;
        let held = |one: &S| finalizers(one.meta()).any(|name| name == FINALIZER);
        Ok(listed.into_iter().flatten().filter(held).collect())
    }
}

/// Deletes the children that are marked to end, and releases the parents.
async fn end(client: &Client, declared: &Declared) -> Result<()> {
    let of = |kind: &KindName| kind.api_resource(&kind.resource);
    let parents = of(&declared.parent);
    let all = all_of(client, &parents).await?;
    let held: Vec<_> = all.iter().filter(|one| declared.holds(one)).collect();
    let uids = held.iter().filter_map(|one| one.uid.clone());
    let uids: BTreeSet<String> = uids.collect();
    for (kind, _) in &declared.children {
        let children = of(kind);
        for child in all_of(client, &children).await? {
            if !ends::parent_of(&child).is_some_and(|parent| uids.contains(&parent)) {
                continue;
            }
            let name = name_of(&child);
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: child.uid.clone(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let api = api_of(client, &children, &child);
            unless_missing(api.delete(name, &parameters).await)
                .with_context(|| format!("failed to delete {kind} {name}"))?;
        }
    }
    for parent in held {
        let api = api_of(client, &parents, parent);
        release(&api, parent, &declared.finalizer).await?;
    }
    Ok(())
}

/// Returns the metadata of all objects of a kind; empty if it is not installed.
async fn all_of(client: &Client, resource: &ApiResource) -> Result<Vec<ObjectMeta>> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let listed = unless_missing(all.list_metadata(&ListParams::default()).await)
        .with_context(|| format!("failed to list {}", resource.plural))?;
    Ok(listed
        .into_iter()
        .flatten()
        .map(|one| one.metadata)
        .collect())
}

fn api_of(client: &Client, resource: &ApiResource, object: &ObjectMeta) -> Api<DynamicObject> {
    match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

fn name_of(object: &ObjectMeta) -> &str {
    object.name.as_deref().unwrap_or_default()
}
