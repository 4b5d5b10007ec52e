//! `ozctl audit tail`: prints audit records as they are written.

use clap::Args;

use super::read::{Filter, cells, table};
use crate::audit::{self, Tailed};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Follow the audit records until Ctrl-C
#[derive(Args)]
pub(super) struct Tail {
    #[command(flatten)]
    filter: Filter,
}

impl Tail {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let query = self.filter.query(context);
        let cluster = context.cluster().await?;
        let tail = audit::Tail::begin(&cluster, &query).await?;
        // After this line, readers may rely on each record that follows.
        if !context.pass_on(table(&[], true).to_string().as_bytes())? {
            return Ok(Exit::SUCCESS);
        }
        let show = |event: Tailed<'_>| {
            match event {
                Tailed::Record(entry) => {
                    let line = format!("{}\n", cells(entry, true).join("   "));
                    return context.pass_on(line.as_bytes());
                }
                Tailed::Interrupted(failure) => {
                    context.say_plain(&format!("{}: trying again", failure.message()));
                }
                Tailed::Resumed => context.say("the API server responds again"),
            }
            Ok(true)
        };
        tail.follow(show).await?;
        Ok(Exit::SUCCESS)
    }
}
