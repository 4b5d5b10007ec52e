//! `kubectl paddock`: the command lines of that tool, carried out by the verbs of ozctl. The
//! program is the same, started under the name `kubectl-paddock`.

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use oz_trail::Action;

use crate::connection::Connection;
use crate::context::{Context, Program};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::verbs::{audit, policy, run, version};

/// Run AI agents in confined pods, by oz.
///
/// The command lines of Paddock's own tool. Each is one of `ozctl run` and `ozctl
/// audit`, which have more flags.
#[derive(Parser)]
#[command(
    name = "kubectl-paddock",
    bin_name = "kubectl paddock",
    version,
    max_term_width = 80,
    after_help = "\
Examples:
  kubectl paddock submit -t echo --prompt 'say hello' --wait
  kubectl paddock list templates
  kubectl paddock logs hello --result
  kubectl paddock policy check claude-code"
)]
pub(crate) struct Paddock {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Submit(run::submit::Submit),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Status(run::status::Status),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(run::list::List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Cancel(run::cancel::Cancel),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Events(run::events::Events),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Logs(run::logs::Logs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Explain(run::explain::Explain),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Policy(Policy),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Audit(Audit),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Describe(Describe),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Version(version::Version),
}

/// Show and check the broker policies of harness runs
#[derive(Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    verb: PolicyVerb,
}

#[derive(Subcommand)]
enum PolicyVerb {
    #[command(flatten)]
    Ours(policy::Verb),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Suggest(Suggest),
}

/// Suggest grants for a broker policy (not served yet)
#[derive(Args)]
struct Suggest {
    /// Run with the refused hosts to suggest
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with = "all",
        required_unless_present = "all"
    )]
    run: Option<String>,
    /// Suggest the refused hosts of all runs
    #[arg(long)]
    all: bool,
    /// Maximum age of the records
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
}

/// Show the newest audit records about harness runs
#[derive(Args)]
pub(crate) struct Audit {
    /// About this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Of this kind: an action of docs/reference/audit.md
    #[arg(long, value_name = "ACTION")]
    kind: Option<String>,
    /// Maximum number of records
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
}

/// Show the effective harness template
#[derive(Args)]
pub(crate) struct Describe {
    #[command(subcommand)]
    what: Described,
}

#[derive(Subcommand)]
enum Described {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Template(run::template::Template),
}

/// Returns all commands and flags, with examples under the name of this tool.
pub(crate) fn command() -> clap::Command {
    renamed(Paddock::command())
}

fn renamed(command: clap::Command) -> clap::Command {
    let mut command = command.args_override_self(true);
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        let text = text
            .replace("ozctl run template ", "kubectl paddock describe template ")
            .replace("ozctl run ", "kubectl paddock ");
        command = command.after_help(text);
    }
    command.mut_subcommands(renamed)
}

/// Reads a command line.
pub(crate) fn parse(arguments: &[std::ffi::OsString]) -> Result<Paddock, clap::Error> {
    let mut command = command();
    let matches = command.clone().try_get_matches_from(arguments)?;
    Paddock::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

impl Verb {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self {
            Self::Submit(verb) => Box::pin(verb.run(context)).await,
            Self::Status(verb) => verb.run(context).await,
            Self::List(verb) => verb.run(context).await,
            Self::Cancel(verb) => verb.run(context).await,
            Self::Events(verb) => verb.run(context).await,
            Self::Logs(verb) => Box::pin(verb.run(context)).await,
            Self::Explain(verb) => verb.run(context).await,
            Self::Policy(Policy {
                verb: PolicyVerb::Ours(verb),
            }) => verb.run(context).await,
            Self::Policy(Policy {
                verb: PolicyVerb::Suggest(_),
            }) => Err(policy::suggest()),
            Self::Audit(verb) => verb.run(context).await,
            Self::Describe(Describe {
                what: Described::Template(verb),
            }) => verb.run(context).await,
            Self::Version(verb) => verb.run(context).await,
        }
    }
}

impl Audit {
    async fn run(self, context: &Context) -> Result<Exit> {
        let action = self.kind.as_deref().map(|kind| {
            kind.parse::<Action>().map_err(|_| {
                Failure::new(format!("{kind} is not an action of the audit trail")).next(
                    "name an action of docs/reference/audit.md; docs/reference/paddock-audit.md has the action for each kind of Paddock",
                )
            })
        });
        audit::newest(context, self.run, action.transpose()?, self.limit).await
    }
}

/// Returns the name that a program was started under, if it is a name of ozctl.
pub(crate) fn program(name: &str) -> Program {
    match name {
        "kubectl-oz" | "kubectl_oz" => Program::KubectlOz,
        "kubectl-paddock" | "kubectl_paddock" => Program::KubectlPaddock,
        _ => Program::Ozctl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<std::ffi::OsString> {
        let words = line.split(' ').map(Into::into);
        ["kubectl-paddock".into()]
            .into_iter()
            .chain(words)
            .collect()
    }

    /// Every documented command line (specs: §10, CLI).
    const DOCUMENTED: [&str; 40] = [
        "submit -t echo --prompt hi",
        "submit --template echo --prompt-file task.md",
        "submit -t echo --prompt-file -",
        "submit -t echo --template-kind ClusterHarnessTemplate --prompt hi",
        "submit -t echo --template-kind HarnessTemplate --prompt hi",
        "submit -t echo --workspace demo --prompt hi",
        "submit -t echo --prompt hi --model m",
        "submit -t echo --prompt hi --timeout 10m",
        "submit -t echo --prompt hi --name hello",
        "submit -t echo --prompt hi --wait",
        "submit -t echo --prompt hi --wait --wait-timeout 30m",
        "submit -t echo --prompt hi -n team",
        "status hello",
        "list",
        "list runs",
        "list workspaces",
        "list templates",
        "list clustertemplates",
        "cancel hello",
        "events hello",
        "events hello -f",
        "events hello -f --poll 2s",
        "logs hello",
        "logs hello --raw",
        "logs hello --result",
        "logs hello --file metadata.json",
        "logs hello --timeout 1m --keep-reader",
        "logs hello --reader-image cat@sha256:0 --allow-reader-image-prefix example.com/",
        "policy list",
        "policy check echo",
        "policy scaffold echo",
        "policy scaffold echo --provider AnthropicAPI --name echo",
        "policy suggest --run hello",
        "policy suggest --all --since 24h",
        "audit",
        "audit --run hello",
        "audit --kind run-failed --limit 50",
        "describe template echo",
        "version",
        "--namespace team status hello",
    ];

    #[test]
    fn every_documented_command_line_is_read() {
        for line in DOCUMENTED {
            let refused = parse(&words(line)).err().map(|error| error.to_string());
            assert_eq!(refused, None, "{line}");
        }
        for line in [
            "submit -t echo",
            "submit -t echo --prompt hi --prompt-file f",
            "submit --prompt hi",
            "submit -t echo --prompt hi --template-kind Other",
            "list secrets",
            "logs hello --raw --result",
            "policy suggest",
            "policy suggest --run hello --all",
            "policy scaffold echo --provider Other",
        ] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn no_help_page_leads_to_a_command_of_another_name() {
        fn pages(command: &mut clap::Command, all: &mut Vec<String>) {
            all.push(command.render_long_help().to_string());
            for below in command.get_subcommands_mut() {
                pages(below, all);
            }
        }
        let (mut command, mut all) = (command(), Vec::new());
        command.build();
        pages(&mut command, &mut all);
        let all = all.join("\n");
        assert!(all.contains("kubectl paddock submit -t echo"), "{all}");
        assert!(
            !all.contains("ozctl run submit") && !all.contains("ozctl run policy check"),
            "{all}"
        );
    }

    #[test]
    fn suggested_commands_use_name_of_program() {
        for (words, typed) in [
            ("run cancel a", "kubectl paddock cancel a"),
            ("run list templates", "kubectl paddock list templates"),
            ("run explain a", "kubectl paddock explain a"),
            ("run template a", "kubectl paddock describe template a"),
            ("policy check a", "kubectl paddock policy check a"),
            ("doctor", "ozctl doctor"),
            ("workspace list", "ozctl workspace list"),
        ] {
            assert_eq!(Program::KubectlPaddock.typed(words), typed);
            assert_eq!(
                Program::KubectlOz.typed(words),
                format!("kubectl oz {words}")
            );
            assert_eq!(Program::Ozctl.typed(words), format!("ozctl {words}"));
        }
        assert_eq!(program("kubectl-paddock"), Program::KubectlPaddock);
        assert_eq!(program("ozctl"), Program::Ozctl);
    }
}
