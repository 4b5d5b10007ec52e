//! The steps before oz is removed: the operator, which is still running, ends all access with its
//! audit records, and then the webhooks and the components that would restore them are removed from
//! the API server. This program removes the objects that remain without an operator. The chart's
//! pre-delete hook runs it, with separate rights.

mod access;
mod composites;
mod harness;
mod leftovers;
mod objects;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use oz_api::duration::not_negative;
use oz_api::names;
use oz_composites::Account;
use oz_core::kinds::{Removal, own_objects};
use oz_runtime::Common;
use serde_json::json;

use self::objects::{PAUSE, STOP, unless_missing};

/// The selector of pods that have not ended: ended ones may stay for long, and have no effect.
const RUNNING: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// The flags of the removal.
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

    /// Timeout for ending all access, such as 60s.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = not_negative)]
    timeout: SignedDuration,

    /// Service account with which composites read and write, as NAMESPACE/NAME: it ends the children that no operator
    /// ended.
    #[arg(long, value_name = "ACCOUNT")]
    composite_account: Option<Account>,

    /// End harness runs, too.
    #[arg(long)]
    harness: bool,

    /// Delete the gate's APIService, which blocks the deletion of namespaces while no gate responds.
    #[arg(long)]
    gate: bool,
}

/// Ends all access and removes the objects that do not belong to the chart.
pub(crate) async fn run(common: &Common, options: &Options) -> Result<()> {
    let mut config = common.config(names::OPERATOR).await?;
    let (client, _) = oz_runtime::client(config.clone())?;
    let patience = Duration::try_from(options.timeout)?;
    let account = options.composite_account.as_ref().map(|account| {
        config.auth_info.impersonate = Some(account.user());
        oz_runtime::client(config).map(|(client, _)| client)
    });
    let here = Here {
        client,
        account: account.transpose()?,
        namespace: &common.namespace,
        ends_runs: options.harness,
    };
    // The webhook still stamps requests: new ones may come until it is gone. Then those are ended,
    // too, and after that a new one has no valid stamp.
    let patience = here.end_access(patience).await?;
    here.stop(&options.webhook_deployment).await?;
    here.none_left(&options.webhook_pods).await;
    here.remove_own(Removal::AfterWebhook).await?;
    here.end_access(patience).await?;
    here.stop(&options.operator_deployment).await?;
    // A replica that is ending would recreate its key after the deletion.
    here.none_left(&options.operator_pods).await;
    if options.gate {
        // No operator restores it any more.
        here.remove_own(Removal::AfterGate).await?;
    }
    here.remove_leftovers().await?;
    here.let_go().await?;
    // Their seals are worthless from then on.
    here.remove_own(Removal::AfterAccess).await?;
    // Once more, in case a webhook was still running and restored them.
    here.remove_own(Removal::AfterWebhook).await?;
    tracing::info!("all access is revoked and the webhooks are removed from the API server");
    Ok(())
}

struct Here<'a> {
    client: Client,
    /// The client with which parents and children of composites are read and written; `None` if composites do not
    /// run.
    account: Option<Client>,
    namespace: &'a str,
    /// Whether harness runs are served; otherwise they are left alone.
    ends_runs: bool,
}

impl Here<'_> {
    fn own<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Deletes the objects of the installation that one step removes.
    async fn remove_own(&self, step: Removal) -> Result<()> {
        let all = own_objects().into_iter();
        for object in all.filter(|object| object.removal == step) {
            let namespace = object.namespaced.then_some(self.namespace);
            let api = objects::api(&self.client, &object.resource, namespace);
            unless_missing(api.delete(object.name, &DeleteParams::default()).await).with_context(
                || format!("failed to delete {} {}", object.resource.kind, object.name),
            )?;
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
                Ok(list) => format!("{} pods still exist", list.items.len()),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > STOP {
                tracing::warn!(
                    selector,
                    left,
                    "pods did not end in time; continuing without"
                );
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
