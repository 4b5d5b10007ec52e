//! `ozctl unlock`: removes a lock.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_core::access::lock::target;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::names::checked;
use crate::output::line;
use crate::{complete, locks};

/// Delete an access lock
#[derive(Args)]
#[command(after_help = "\
Users can request access again. Access that the lock revoked stays revoked.

Examples:
  ozctl unlock user-alice-x7k2p")]
pub(crate) struct Unlock {
    /// Name of the lock
    #[arg(add = ArgValueCandidates::new(complete::locks))]
    name: String,
}

impl Unlock {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let name = checked(&self.name)?;
        let cluster = context.cluster().await?;
        let lock = locks::remove(&cluster, name).await?;
        context.print(&format!(
            "{} is unlocked ({name})\n",
            line(&target(&lock.spec.target))
        ))?;
        Ok(Exit::SUCCESS)
    }
}
