//! `ozctl audit show`: shows one audit record, complete.

use clap::Args;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{json, yaml};
use crate::trail::events;

/// Show one record, whole
#[derive(Args)]
pub(super) struct Show {
    /// Name of the AuditEvent
    #[arg(value_name = "NAME")]
    name: String,
    /// As JSON instead of YAML
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let event = cluster.answer(events(&cluster).get(&self.name)).await?;
        let spec = &event.data["spec"];
        context.print(&if self.json { json(spec)? } else { yaml(spec)? })?;
        Ok(Exit::SUCCESS)
    }
}
