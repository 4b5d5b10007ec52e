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
            "Records from before {} are gone from the cluster; that they are is on record.",
            instant(self.before)
        ));
        Ok(Exit::SUCCESS)
    }
}
