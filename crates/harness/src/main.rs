//! The oz container in the pod of a run. It provides the prompt before the agent starts, converts the output of the
//! agent into events, reports the latest events to the broker, and writes the outcome as its termination message.

mod args;
mod broker;
mod cat;
mod convert;
mod cut;
mod directory;
mod follow;
mod log;
mod metadata;
mod netinit;
mod outputs;
mod prepare;
mod proxy;
mod reports;
mod ring;
mod tail;
mod transcript;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use args::{Command, Options, Program};
use follow::Verb;

fn main() -> ExitCode {
    // First: the connection to the broker requires a cryptography provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (options, verb) = match Program::parse().command {
        Command::Ready { shared, within } => {
            let within = Duration::from_secs(within.into());
            return said("not ready", prepare::wait(&shared, within));
        }
        Command::Cat { file } => return said("failed", cat::write(&file)),
        Command::Netinit { termination_log } => return left(netinit::run(), &termination_log),
        Command::Proxy(options) => return said("failed", proxy::run(&options)),
        Command::ProxyReady { authority, within } => {
            let within = Duration::from_secs(within.into());
            return said("not ready", proxy::wait(&authority, within));
        }
        Command::Runtime(options) => (options, Verb::Runtime),
        Command::Report(options) => (options, Verb::Report),
    };
    left(run(&options, verb), &options.termination_log)
}

/// Returns the exit code of a container; an error is written to standard error, and to the termination message: a user
/// who reads the pod sees the error without the log.
fn left(done: anyhow::Result<()>, termination_log: &Path) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let said = format!("{error:#}");
            log::say(&said);
            if let Err(error) = outputs::leave_message(termination_log, &said) {
                log::say(&format!("{error:#}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code of a command that only reads; an error is written to standard error.
fn said(what: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::say(&format!("{what}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, verb: Verb) -> anyhow::Result<()> {
    // One thread: there is little work, and memory is limited.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow::run(options, verb))
}
