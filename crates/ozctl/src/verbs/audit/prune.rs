//! `ozctl audit prune`: has the operator delete the oldest audit records from the cluster, and
//! record the deletion, so that verification can account for it.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::names;
use oz_trail::PruneOrder;
use serde_json::json;
use tokio::time::Instant;

use super::read::when;
use super::verify::Oz;
use crate::choose;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::instant;

/// The timeout for the operator to delete the records.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(300);
/// The interval between checks for the result.
const POLL: Duration = Duration::from_secs(1);

/// Delete the oldest records from the cluster, on record
///
/// The order is left in ConfigMap oz-audit-prune of oz's namespace, which takes rights there that
/// administrators have. The operator puts on record, signed, what goes and who asks, deletes it, and
/// deletes the order. `ozctl audit verify` knows of it from then on. Logs and collectors keep what they
/// have.
#[derive(Args)]
pub(super) struct Prune {
    /// What is older goes: 2160h, or an instant such as 2026-01-02T15:04:05Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    before: Timestamp,
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    oz: Oz,
}

impl Prune {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let order = PruneOrder {
            before: self.before,
            by: choose::myself(&cluster).await?.user,
        };
        let text = serde_json::to_string(&order)
            .map_err(|error| Failure::new(format!("failed to write the order: {error}")))?;
        let namespace = &self.oz.namespace;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        let name = names::AUDIT_PRUNE;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {PruneOrder::KEY: text},
        });
        let apply = PatchParams::apply("ozctl").force();
        maps.patch(name, &apply, &Patch::Apply(map))
            .await
            .map_err(|error| {
                let what = format!("failed to leave the order in ConfigMap {namespace}/{name}");
                Failure::new(format!("{what}: {error}"))
            })?;
        if self.no_wait {
            context.say(&format!(
                "oz deletes records from before {} within some seconds.",
                instant(self.before)
            ));
            return Ok(Exit::SUCCESS);
        }
        let since = Instant::now();
        while since.elapsed() < PRUNE_TIMEOUT {
            let left = maps.get_opt(name).await.map_err(|error| {
                Failure::new(format!(
                    "failed to read ConfigMap {namespace}/{name}: {error}"
                ))
            })?;
            if left.is_none() {
                context.say(&format!(
                    "Records from before {} are gone from the cluster; that they are is on record.",
                    instant(self.before)
                ));
                return Ok(Exit::SUCCESS);
            }
            tokio::time::sleep(POLL).await;
        }
        let failure = Failure::new("the operator has not carried out the order yet");
        Err(failure.next("look into its log; the order stays until it is done"))
    }
}
