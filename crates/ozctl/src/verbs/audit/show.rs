//! `ozctl audit show`: shows one audit record, complete.

use clap::Args;

use crate::audit::record;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{json, yaml};

/// Show one audit record with all fields
#[derive(Args)]
pub(super) struct Show {
    /// Name of the AuditEvent
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON instead of YAML
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let spec = record(&cluster, &self.name).await?;
        context.print(&if self.json {
            json(&spec)?
        } else {
            yaml(&spec)?
        })?;
        Ok(Exit::SUCCESS)
    }
}
