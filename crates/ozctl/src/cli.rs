//! The path from a command line to an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use clap_complete::CompleteEnv;

use crate::connection::Connection;
use crate::context::{Context, Program};
use crate::exit::Exit;
use crate::failure::Result;
use crate::verbs::{HEADINGS, Verb};
use crate::{complete, paddock};

/// Request time-limited access to pods, and revoke it.
///
/// Templates define which users may access which pods, and for how long. A request names a
/// template; oz grants access to you alone, to one pod, and revokes it at its expiry.
#[derive(Parser)]
#[command(
    name = "ozctl",
    version,
    max_term_width = 80,
    disable_help_subcommand = false,
    after_help = "\
Examples:
  ozctl exec deploy/web                    a shell in a pod of Deployment web
  ozctl exec deploy/web -- pg_dump | gzip  one command, in a pipeline
  ozctl templates                          the access that you can request
  ozctl requests                           the requests of the namespace
  ozctl run submit -t echo --prompt hi     an AI agent, in a confined pod

`ozctl COMMAND --help` describes a command, and `ozctl options` lists the
options that select cluster and user."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Returns all commands and flags, for generated documentation.
#[must_use]
pub fn command() -> clap::Command {
    let command = last_wins(Cli::command()).mut_subcommands(|verb| match verb.get_name() {
        // The former name of `ozctl run policy`.
        "policy" => verb.hide(true),
        _ => verb,
    });
    let help = grouped(&command);
    command.help_template(help)
}

/// Returns the template of the help with the verbs below their headings: clap has one heading for all subcommands.
fn grouped(command: &clap::Command) -> StyledStr {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let mut verbs = command.get_subcommands();
    for (heading, count) in HEADINGS {
        let mut below = clap::Command::new("below")
            .disable_help_subcommand(true)
            .max_term_width(80)
            .help_template("{subcommands}")
            .subcommands(verbs.by_ref().take(*count).cloned());
        let below = below.render_help().ansi().to_string();
        template += &format!("\n{heading}:\n{}\n", below.trim_matches('\n'));
    }
    template += "\nOptions:\n{options}{after-help}";
    template.into()
}

/// Makes the last value of a repeated flag count, as kubectl does: an alias may set the first.
fn last_wins(command: clap::Command) -> clap::Command {
    command.args_override_self(true).mut_subcommands(last_wins)
}

/// Returns the help page of a verb.
pub(crate) fn help(verb: &str) -> String {
    let mut command = command();
    command.build();
    let verb = command.find_subcommand_mut(verb);
    verb.map_or_else(String::new, |verb| verb.render_long_help().to_string())
}

/// Runs the process's own command line.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let completed = arguments.first().and_then(|started| {
        let plugin = complete::kubectl_plugin(started)?;
        Some(paddock::program(&format!("kubectl-{plugin}")))
    });
    if let Some(program) = completed {
        return complete::for_kubectl(command_of(program), arguments);
    }
    let program = program(arguments.first());
    CompleteEnv::with_factory(move || command_of(program)).complete();
    oz_client::tls::install();
    let exit = match program {
        Program::KubectlPaddock => match paddock::parse(&arguments) {
            Ok(cli) => perform(cli.connection, program, async |context| {
                cli.verb.run(context).await
            }),
            Err(error) => said(&error),
        },
        _ => match parse(&arguments, program) {
            Ok(cli) => run(cli, program),
            Err(error) => said(&error),
        },
    };
    exit.into()
}

/// Returns all commands of the program.
fn command_of(program: Program) -> clap::Command {
    match program {
        Program::KubectlPaddock => paddock::command(),
        _ => command(),
    }
}

fn parse(arguments: &[OsString], program: Program) -> Result<Cli, clap::Error> {
    let mut command = command();
    if program == Program::KubectlOz {
        command = command.name("kubectl-oz").bin_name("kubectl oz");
    }
    let matches = command.clone().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Prints the requested help, or the error in a command line.
fn said(error: &clap::Error) -> Exit {
    // A closed pipe is not a second failure.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A verb that requires a subcommand lists its subcommands, as the original did.
        let _ = write!(std::io::stdout(), "{error}");
        return Exit::SUCCESS;
    }
    let _ = error.print();
    let usage = error.render().to_string();
    if error.kind() == ErrorKind::UnknownArgument && usage.contains("[-- <COMMAND>...]") {
        let _ = writeln!(
            std::io::stderr(),
            "A command to run stands after --, as in: ozctl exec TARGET -- ls -la"
        );
    }
    // The original had no other exit code for an invalid command line.
    Exit::code(u8::from(error.use_stderr()))
}

/// Returns the name that the process was started under: kubectl looks for programs with the prefix
/// `kubectl-` in their names.
fn program(started: Option<&OsString>) -> Program {
    let name = started.and_then(|path| Path::new(path).file_stem());
    let name = name.and_then(|name| name.to_str());
    name.map_or(Program::Ozctl, paddock::program)
}

fn run(mut cli: Cli, program: Program) -> Exit {
    cli.connection.tidy();
    let user = &mut cli.connection.user;
    match &mut cli.verb {
        // As in `kubectl create rolebinding`, --user is the subject of the binding.
        Verb::Bind(bind) => bind.user = user.take(),
        // For `explain`, --user is the requester.
        Verb::Explain(explain) => explain.take_person(user),
        _ => {}
    }
    perform(cli.connection, program, async |context| {
        cli.verb.run(context).await
    })
}

/// Runs the verb of a command line, and prints its failure.
fn perform(
    mut connection: Connection,
    program: Program,
    verb: impl AsyncFnOnce(&Context) -> Result<Exit>,
) -> Exit {
    connection.tidy();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "Error: failed to start: {error}");
            return Exit::code(1);
        }
    };
    let context = Context::new(connection, program);
    let result = runtime.block_on(verb(&context));
    // A thread may still wait for the keyboard; the process does not wait for that thread.
    runtime.shutdown_background();
    match result {
        Ok(exit) => exit,
        Err(failure) => {
            let _ = write!(std::io::stderr(), "{}", context.error(&failure));
            failure.exit()
        }
    }
}
