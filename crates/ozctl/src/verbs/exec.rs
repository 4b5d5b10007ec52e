//! `ozctl exec`: opens a session in a running pod, from the request to the shell and back.

use std::io::IsTerminal as _;

use clap::Args;
use clap_complete::ArgValueCompleter;
use oz_api::{ExecAccessRequest, Operation};
use oz_client::pods::Command;
use oz_core::kinds::AccessRequest;

use crate::access::{self, AccessFlags, Granted, Want};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::target::Target;
use crate::{complete, session, terminal};

/// Open a shell, or run one command, in a running pod
///
/// Finds a template that grants you access, requests access, waits until it is granted, runs the
/// command and revokes the access at its end. Standard streams and the exit code are those of the
/// command.
#[derive(Args)]
#[command(after_help = "\
Targets:
  deploy/NAME, sts/NAME, ds/NAME, rollout/NAME   any ready pod of the workload
  pod/NAME                                       this pod
  template/NAME                                  what the template leads to
  NAME                                           whichever of these it names

Examples:
  ozctl exec deploy/web
  ozctl exec deploy/db --reason INC-42 -- pg_dump shop | gzip > shop.sql.gz
  ozctl exec pod/db-0 -c postgres --duration 15m
  ozctl exec deploy/web --keep -- true      # and later: --request NAME

Exit codes: that of the command; 124 if access ended first, 125 if ozctl failed,
126 if the command may not be run, 127 if there is no such command, 130 after
Ctrl-C while waiting.")]
pub(crate) struct Exec {
    /// Pod or workload to connect to
    #[arg(add = ArgValueCompleter::new(complete::targets))]
    target: Target,
    #[command(flatten)]
    session: Session,
}

/// The command line of `exec` and `pod`, without the kind of request.
#[derive(Args)]
pub(crate) struct Session {
    #[command(flatten)]
    flags: SessionFlags,
    #[command(flatten)]
    access: AccessFlags,
    /// The command and its arguments [default: the template's, else /bin/sh]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Session {
    /// Gets access to the target, runs the command in it, and gives the access back.
    pub(crate) async fn run<R>(self, context: &Context, target: &Target) -> Result<Exit>
    where
        R: AccessRequest,
    {
        let want = Want {
            target,
            operation: Operation::Exec,
            container: self.flags.container.as_deref(),
            verb: R::PURPOSE,
        };
        let body = async |cluster: &_, granted: &Granted| {
            let command = self.flags.command(context, &self.command, granted);
            session::run(cluster, granted, &command).await
        };
        access::with::<R>(context, &self.access, want, body)
            .await
            .map_err(not_run)
    }
}

/// The flags with which a session is opened.
#[derive(Args)]
struct SessionFlags {
    /// The container [default: the template's, else the pod's main one]
    #[arg(short, long)]
    container: Option<String>,
    /// Request a terminal even if output is not a terminal; without input from a terminal there is
    /// none, as with kubectl
    #[arg(short = 't', long)]
    tty: bool,
    /// Request no terminal [default: a terminal, if input and output are one]
    #[arg(short = 'T', long, conflicts_with = "tty")]
    no_tty: bool,
    /// Pass no input on
    #[arg(long)]
    no_stdin: bool,
    /// Taken for compatibility with kubectl exec; input is passed on anyway
    #[arg(short = 'i', long = "stdin", hide = true)]
    _stdin: bool,
}

impl SessionFlags {
    /// Returns the command, on a terminal if there is one.
    fn command(&self, context: &Context, words: &[String], granted: &Granted) -> Command {
        let words = match words {
            [] => usual_command(granted.access.message.as_deref()),
            words => words.to_vec(),
        };
        let wanted = !self.no_stdin && !self.no_tty && (self.tty || terminal::is_there());
        let tty = wanted && std::io::stdin().is_terminal();
        if wanted && !tty {
            context.say("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        Command {
            words,
            tty,
            stdin: !self.no_stdin,
        }
    }
}

/// Returns the usual command by the template's author: the words after `--` of its access command,
/// if no shell is required to read them.
fn usual_command(message: Option<&str>) -> Vec<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.:=, ".contains(letter);
    let words = message.and_then(|message| message.split_once(" -- "));
    let words = words.map(|(_, words)| words.trim());
    match words.filter(|words| !words.is_empty() && words.chars().all(plain)) {
        Some(words) => words.split_whitespace().map(str::to_owned).collect(),
        None => vec!["/bin/sh".to_owned()],
    }
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        self.session
            .run::<ExecAccessRequest>(context, &self.target)
            .await
    }
}

/// Returns a failure with its own exit code: the exit codes of the command are not those of ozctl,
/// so a failure before the command has a separate code.
fn not_run(failure: Failure) -> Failure {
    match failure.exit() {
        Exit::FAILURE => failure.with(Exit::NOT_RUN),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::usual_command;

    #[test]
    fn without_a_command_it_is_the_templates() {
        for (message, command) in [
            (
                "kubectl exec -ti -n shop web-0 -- /bin/bash -l",
                "/bin/bash -l",
            ),
            ("kubectl exec -ti -n shop web-0 -- /bin/sh", "/bin/sh"),
            ("kubectl exec web-0 -- sh -c 'exec bash'", "/bin/sh"),
            ("ask the database team", "/bin/sh"),
            ("", "/bin/sh"),
        ] {
            assert_eq!(usual_command(Some(message)).join(" "), command, "{message}");
        }
    }
}
