//! `ozctl audit prune`: has the operator delete the oldest audit records from the cluster, and
//! record the deletion, so that verification can account for it.

use clap::Args;
use jiff::Timestamp;

use super::read::when;
use super::verify::Oz;
use crate::audit::{prune, pruned};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::instant;

/// Delete the oldest audit records from the cluster
///
/// ozctl writes the order into ConfigMap oz-audit-prune of oz's namespace, which requires the
/// rights of an administrator. The operator writes a signed audit record with the deleted period
/// and the user, deletes the audit records, and deletes the order. `ozctl audit verify` accepts the
/// shorter trail from then on. Logs and collectors keep their copies.
#[derive(Args)]
pub(super) struct Prune {
    /// Age or instant before which records are deleted, such as 2160h or 2026-01-02T15:04:05Z
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
        let namespace = &self.oz.namespace;
        prune(&cluster, namespace, self.before).await?;
        if self.no_wait {
            context.say(&format!(
                "oz deletes records from before {} within some seconds.",
                instant(self.before)
            ));
            return Ok(Exit::SUCCESS);
        }
        pruned(&cluster, namespace).await?;
        context.say(&format!(
            "Audit records from before {} are deleted from the cluster, which is recorded.",
            instant(self.before)
        ));
        Ok(Exit::SUCCESS)
    }
}
