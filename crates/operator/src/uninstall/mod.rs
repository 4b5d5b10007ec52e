//! The steps before oz is removed: the operator, which is still running, ends all access with its
//! audit records, and then the webhooks and the components that would restore them are removed from
//! the API server. This program removes the objects that remain without an operator. The chart's
//! pre-delete hook runs it, with separate rights.

mod composites;
mod harness;
mod objects;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::{Api, Client, Resource};
use oz_api::duration::not_negative;
use oz_api::{GROUP, names};
use oz_composites::Account;
use oz_core::kinds::{self, Entry};
use oz_gating::API_SERVICE;
use oz_runtime::Common;
use serde::de::DeserializeOwned;
use serde_json::json;

use self::composites::Composites;
use self::harness::{Runs, is_of_run};
use self::objects::{PAUSE, STOP, delete, finalizers, grants, release, unless_missing};

/// Returns the kinds with objects that represent access. A kind that is not installed is skipped.
fn access() -> impl Iterator<Item = Entry> {
    let all = kinds::all().into_iter();
    all.filter(|kind| {
        matches!(kind.role, kinds::Role::Request | kinds::Role::Binding)
            && kind.resource.group == GROUP
    })
}

/// The selector of pods that have not ended: ended ones may stay for long, and have no effect.
const RUNNING: &str = "status.phase!=Failed,status.phase!=Succeeded";
/// The time for which calls of a busy API server are retried.
const BUSY: Duration = Duration::from_secs(30);

/// What is to be removed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The operator's Deployment.
    #[arg(long, default_value = names::OPERATOR, value_name = "NAME")]
    operator_deployment: String,

    /// The webhook's Deployment.
    #[arg(long, default_value = names::WEBHOOK, value_name = "NAME")]
    webhook_deployment: String,

    /// Labels of the webhook's pods.
    #[arg(
        long,
        default_value = "app.kubernetes.io/component=webhook",
        value_name = "SELECTOR"
    )]
    webhook_pods: String,

    /// Labels of the operator's pods.
    #[arg(
        long,
        default_value = "app.kubernetes.io/component=operator",
        value_name = "SELECTOR"
    )]
    operator_pods: String,

    /// How long the operator gets to end all access, in all, such as 60s.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = not_negative)]
    patience: SignedDuration,

    /// As which service account composites read and write, as NAMESPACE/NAME: as this one, what no operator ended of
    /// them is ended.
    #[arg(long, value_name = "ACCOUNT")]
    composite_account: Option<Account>,

    /// End harness runs, too.
    #[arg(long)]
    harness: bool,

    /// Take the gate's APIService away, which keeps namespaces from being deleted once no gate answers.
    #[arg(long)]
    gate: bool,
}

/// Ends all access and removes the objects that do not belong to the chart.
pub(crate) async fn run(common: &Common, options: &Options) -> Result<()> {
    let config = common.config(names::OPERATOR).await?;
    let (client, _) = oz_runtime::client(config.clone())?;
    let patience = Duration::try_from(options.patience)?;
    let account = options.composite_account.as_ref();
    let here = Here {
        composites: Composites::new(client.clone(), config, account)?,
        namespace: &common.namespace,
        runs: Runs {
            client: client.clone(),
            are_served: options.harness,
        },
        client,
    };
    // The webhook still stamps requests: new ones may come until it is gone. Then those are ended,
    // too, and after that a new one has no valid stamp.
    let patience = here.end_access(patience).await?;
    here.stop(&options.webhook_deployment).await?;
    here.none_left(&options.webhook_pods).await;
    here.unregister().await?;
    here.end_access(patience).await?;
    here.stop(&options.operator_deployment).await?;
    // A replica that is ending would recreate its key after the deletion.
    here.none_left(&options.operator_pods).await;
    if options.gate {
        // No operator restores it any more.
        let services = Api::<APIService>::all(here.client.clone());
        delete(services, API_SERVICE).await?;
    }
    here.remove_leftovers().await?;
    here.let_go().await?;
    here.runs.let_workspaces_go().await?;
    here.composites.let_go().await?;
    // Their seals are worthless from then on.
    for name in [
        names::WEBHOOK_KEY,
        names::WEBHOOK_PUBLIC_KEYS,
        names::OPERATOR_KEY,
        names::OPERATOR_PUBLIC_KEYS,
        names::ADMISSION_AUTHORITY,
    ] {
        delete::<Secret>(here.own(), name).await?;
    }
    delete::<Lease>(here.own(), names::LEASE).await?;
    // Once more, in case a webhook was still running and restored them.
    here.unregister().await?;
    tracing::info!("all access is ended and the webhooks are out of the API server");
    Ok(())
}

struct Here<'a> {
    client: Client,
    composites: Composites,
    namespace: &'a str,
    runs: Runs,
}

impl Here<'_> {
    fn own<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Deletes both webhook configurations from the API server.
    async fn unregister(&self) -> Result<()> {
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        delete(mutating, names::REGISTRATION).await?;
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        delete(validating, names::REGISTRATION).await
    }

    /// Deletes all objects that represent access, and waits until the granted objects are gone, but
    /// not longer than `patience`. Returns the remaining time.
    async fn end_access(&self, patience: Duration) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let mut left = self.composites.delete().await? + self.runs.end().await?;
            for kind in access() {
                left += self.delete_all(&kind).await?;
            }
            let grants = grants::<RoleBinding>(&self.client).await?.len()
                + grants::<ClusterRoleBinding>(&self.client).await?.len()
                + grants::<Role>(&self.client).await?.len()
                + grants::<Pod>(&self.client).await?.len();
            if left + grants == 0 {
                return Ok(patience.saturating_sub(began.elapsed()));
            }
            if began.elapsed() > patience {
                tracing::warn!(
                    requests = left,
                    objects = grants,
                    "the operator did not end all access in time; what is left is removed without \
                     its record"
                );
                return Ok(Duration::ZERO);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes all objects of a kind, and returns their number, without those that only finalizers
    /// of others keep.
    async fn delete_all(&self, access: &Entry) -> Result<usize> {
        let resource = &access.resource;
        let kind = &resource.kind;
        let list = self.all_of(resource).await?;
        for object in &list {
            if object.deletion_timestamp.is_some() {
                continue;
            }
            let (api, name) = self.place_of(resource, object);
            unless_missing(api.delete(name, &DeleteParams::default()).await)
                .with_context(|| format!("failed to delete {kind} {name}"))?;
        }
        let waits = |object: &&ObjectMeta| !is_kept_by_others(access, object);
        Ok(list.iter().filter(waits).count())
    }

    /// Releases objects for which no operator is left, now that nothing of them remains. An object
    /// with finalizers of others stays for those to release: it gives no access, and blocks
    /// nothing.
    async fn let_go(&self) -> Result<()> {
        for access in access() {
            let resource = &access.resource;
            let kind = &resource.kind;
            for object in self.all_of(resource).await? {
                let (api, name) = self.place_of(resource, &object);
                let others = finalizers(&object).filter(|name| Some(*name) != access.finalizer);
                let others: Vec<&str> = others.collect();
                if !others.is_empty() {
                    let (namespace, finalizers) = (&object.namespace, others.join(", "));
                    tracing::warn!(kind, namespace, name, finalizers, "others keep an object");
                }
                let ours = access
                    .finalizer
                    .filter(|ours| finalizers(&object).any(|it| it == *ours));
                if let Some(ours) = ours {
                    release(&api, &object, ours)
                        .await
                        .with_context(|| format!("failed to let go of {kind} {name}"))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the metadata of all objects of a kind; empty if it is not installed.
    async fn all_of(&self, resource: &ApiResource) -> Result<Vec<ObjectMeta>> {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        let began = Instant::now();
        loop {
            match unless_missing(all.list_metadata(&ListParams::default()).await) {
                Ok(listed) => {
                    return Ok(listed.into_iter().flatten().map(|it| it.metadata).collect());
                }
                // For example while the API server prepares to serve a kind.
                Err(error) if is_busy(&error) && began.elapsed() < BUSY => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("failed to list {}", resource.plural));
                }
            }
        }
    }

    fn place_of<'a>(
        &self,
        resource: &ApiResource,
        object: &'a ObjectMeta,
    ) -> (Api<DynamicObject>, &'a str) {
        let api = match &object.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        (api, object.name.as_deref().unwrap_or_default())
    }

    /// Removes the objects that no operator removed, those that give access first.
    async fn remove_leftovers(&self) -> Result<()> {
        for metadata in grants::<ClusterRoleBinding>(&self.client).await? {
            let name = metadata.name.unwrap_or_default();
            tracing::warn!(
                kind = "ClusterRoleBinding",
                name,
                "removing without the operator"
            );
            let api = Api::<ClusterRoleBinding>::all(self.client.clone());
            delete(api, &name).await?;
        }
        self.remove_grants::<RoleBinding>().await?;
        self.remove_grants::<Pod>().await?;
        self.remove_grants::<NetworkPolicy>().await?;
        self.remove_grants::<Role>().await?;
        self.runs.remove().await
    }

    async fn remove_grants<K>(&self) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        for metadata in grants::<K>(&self.client).await? {
            if is_of_run(&metadata) {
                continue;
            }
            let namespace = metadata.namespace.unwrap_or_default();
            let name = metadata.name.unwrap_or_default();
            tracing::warn!(kind = %K::kind(&()), namespace, name, "removing without the operator");
            let api = Api::<K>::namespaced(self.client.clone(), &namespace);
            delete(api, &name).await?;
        }
        Ok(())
    }

    /// Scales a Deployment to zero.
    async fn stop(&self, name: &str) -> Result<()> {
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        let patched = self
            .own::<Deployment>()
            .patch_scale(name, &PatchParams::default(), &none)
            .await;
        unless_missing(patched)
            .with_context(|| format!("failed to scale Deployment {name} to 0"))?;
        Ok(())
    }

    /// Waits until no pod with these labels runs: one that is ending may still be active. The wait
    /// has a timeout: the pods of a lost node stay until an administrator removes it, and the
    /// registration must be deleted in any case.
    async fn none_left(&self, selector: &str) {
        let running = ListParams::default().labels(selector).fields(RUNNING);
        let pods = self.own::<Pod>();
        let began = Instant::now();
        loop {
            let left = match pods.list_metadata(&running).await {
                Ok(list) if list.items.is_empty() => return,
                Ok(list) => format!("{} pods are still there", list.items.len()),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > STOP {
                tracing::warn!(selector, left, "pods did not end in time; going on without");
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Checks whether an object would be gone, but for finalizers that are not oz's: a user who may
/// request access can add one to a request, and must not delay the removal with it.
fn is_kept_by_others(access: &Entry, object: &ObjectMeta) -> bool {
    let keeps = |name: &str| Some(name) == access.finalizer;
    object.deletion_timestamp.is_some()
        && finalizers(object).next().is_some()
        && !finalizers(object).any(keeps)
}

fn is_busy(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 || status.code >= 500)
}

#[cfg(test)]
mod tests {
    use oz_core::transient::FINALIZER;

    use super::*;

    fn metadata(value: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nothing_waits_for_the_finalizers_of_others() {
        let of = |role| access().find(|kind| kind.role == role).unwrap();
        let (exec, binding) = (&of(kinds::Role::Request), &of(kinds::Role::Binding));
        let other = "example.com/other";
        let deleted = Some("2026-01-01T00:00:00Z");
        for (access, deleted, finalizers, kept) in [
            (exec, deleted, &[other][..], true),
            // oz's finalizer has no meaning on a request: no component removes it.
            (exec, deleted, &[FINALIZER], true),
            (exec, None, &[other], false),
            // It counts as gone.
            (exec, deleted, &[], false),
            (binding, deleted, &[other], true),
            (binding, deleted, &[FINALIZER], false),
            (binding, deleted, &[other, FINALIZER], false),
        ] {
            let object = metadata(json!({"deletionTimestamp": deleted, "finalizers": finalizers}));
            let kind = &access.resource.kind;
            let found = is_kept_by_others(access, &object);
            assert_eq!(found, kept, "{kind} {deleted:?} {finalizers:?}");
        }
    }
}
