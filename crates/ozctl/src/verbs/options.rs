//! `ozctl options`: lists the options that every verb takes, which would obscure the other options
//! in its help.

use clap::{Args, Command};

use crate::connection::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// List the options that select cluster and user, for every command
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        context.print(&text())?;
        Ok(Exit::SUCCESS)
    }
}

pub(crate) fn text() -> String {
    let command = Connection::augment_args(Command::new("ozctl"))
        .mut_args(|argument| argument.hide(false))
        .disable_help_flag(true)
        .max_term_width(80)
        .help_template("The following options can be passed to any command:\n\n{all-args}");
    let help = command.clone().render_help().to_string();
    help.trim_end().to_owned() + "\n"
}
