//! `ozctl completion SHELL`: prints the script that a shell loads. ozctl itself then finds the
//! completions, including names of templates and requests.

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Print the shell completion of commands and Kubernetes names
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(ozctl completion bash)                    # in ~/.bashrc
  source <(ozctl completion zsh)                     # in ~/.zshrc
  ozctl completion fish | source                     # in config.fish

Names of templates, requests, namespaces and contexts are read from the cluster
as you type, unless it does not respond within two seconds.")]
pub(crate) struct Completion {
    /// The shell
    shell: Option<Shell>,
    /// Taken for compatibility with the original; descriptions are the shell's to show
    #[arg(long, hide = true)]
    no_descriptions: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

impl Completion {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let shell: &dyn EnvCompleter = match self.shell {
            // The behaviour of the original.
            None => {
                context.print(&cli::help("completion"))?;
                return Ok(Exit::SUCCESS);
            }
            Some(Shell::Bash) => &Bash,
            Some(Shell::Zsh) => &Zsh,
            Some(Shell::Fish) => &Fish,
            Some(Shell::Powershell) => &Powershell,
            Some(Shell::Elvish) => &Elvish,
        };
        let mut script = Vec::new();
        shell
            .write_registration("COMPLETE", "ozctl", "ozctl", "ozctl", &mut script)
            .map_err(|error| Failure::new(format!("failed to write the script: {error}")))?;
        let script = String::from_utf8_lossy(&script);
        context.print(&match self.shell {
            Some(Shell::Zsh) => with_compinit(&script),
            _ => script.into_owned(),
        })?;
        Ok(Exit::SUCCESS)
    }
}

/// Loads `compinit` first: zsh has `compdef` only after that, and a `.zshrc` need not load it.
fn with_compinit(script: &str) -> String {
    let (first, rest) = script.split_once('\n').unwrap_or(("", script));
    format!(
        "{first}\n(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}\n{rest}"
    )
}
