//! `ozctl sessions transcript`.

use std::path::PathBuf;

use clap::Args;
use oz_client::sessions::transcript::Transcript;

use super::identity::IdentityArgs;
use super::{found_session, source};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::lines;

/// Show the output of a session recording as text
#[derive(Args)]
#[command(after_help = "\
Each line is shown as it left the screen, or as it was at the end. The alternate screen, which editors use, is not in it.")]
pub(super) struct ShowTranscript {
    /// REQUEST, or REQUEST/SESSION; REQUEST is the name of the request or its UID
    session: String,
    /// Read the recording there, not through the gate: a directory with what the gate stored
    #[arg(long, value_name = "DIRECTORY")]
    from: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

impl ShowTranscript {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let identities = self.identity.read(context)?;
        let source = source(context, self.from.as_deref()).await?;
        let key = found_session(context, &source, &self.session, &identities).await?;
        let mut transcript = Transcript::begin(&source, key, &identities).await?;
        while let Some(seen) = transcript.next_lines()? {
            let text = seen.iter().map(|line| format!("{}\n", lines(line)));
            context.print(&text.collect::<String>())?;
        }
        Ok(Exit::SUCCESS)
    }
}
