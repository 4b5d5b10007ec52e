//! The command line: verbs, and the variables that `oz_runs::pod` sets.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The oz container in the pod of a run.
#[derive(Debug, Parser)]
#[command(
    name = "oz-harness",
    version,
    long_about = "Our container in the pod of a run.\n\n\
        oz starts it as a sidecar, before the agent. It fetches the prompt from the broker, turns the lines \
        that the agent writes into events, reports the last of them, and leaves the outcome of the run as its \
        termination message. Nobody needs to start it by hand; docs/reference/harness-contract.md says what an \
        image may rely on."
)]
pub(crate) struct Program {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch the prompt, turn the agent's output into events, report them
    #[command(
        long_about = "In place of a runtime image: fetch the prompt, turn each line of the agent's raw output \
            into events, append these to events.jsonl in the transcript, write the same lines to standard \
            output, and report the last of them to the broker.\n\nSIGTERM ends it: it reads what is left, writes \
            the termination message, reports a last time, and exits with 0. It exits with 1 if the broker \
            refuses the prompt for good."
    )]
    Runtime(Options),
    /// Fetch the prompt and report the events that a runtime image writes
    #[command(
        long_about = "Beside a runtime image: fetch the prompt, read events.jsonl of the transcript as the \
            runtime appends to it, and report the last events to the broker. It writes neither events nor \
            standard output; the runtime does.\n\nSIGTERM and exit codes are those of `runtime`."
    )]
    Report(Options),
    /// Exit with 0 once the agent may start
    #[command(
        long_about = "The kubelet runs it when the container has started, and starts the agent thereafter: it exits \
            with 0 once the prompt is in its place and the agent can write its raw output. It exits with 1 if they \
            are not within the time, and says on standard error what is missing; the container then starts again."
    )]
    Ready {
        #[command(flatten)]
        shared: Shared,
        /// Time to wait, in seconds
        #[arg(long, default_value_t = 0, value_name = "SECONDS")]
        within: u8,
    },
    /// Write a file of a transcript to standard output
    #[command(
        long_about = "For `ozctl run logs`: writes a plain file to standard output. No step of its path may be a \
            link, since the agent wrote the folder. It exits with 1 if there is no such file."
    )]
    Cat {
        /// The file, by its whole path
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// The files that the containers of a run share.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shared {
    /// File that the agent appends its output to, in a folder of the volume that all containers share
    #[arg(
        long,
        env = "PADDOCK_RAW_PATH",
        default_value = "/paddock/raw/out",
        value_name = "FILE"
    )]
    pub(crate) raw: PathBuf,
    /// File with the prompt; absent for a run that takes prompts while it runs
    #[arg(long, env = "PADDOCK_PROMPT_FILE", value_name = "FILE")]
    pub(crate) prompt: Option<PathBuf>,
}

/// The identity of a run, and the paths of its files.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Directory on which the workspace is mounted
    #[arg(long, env = "OZ_WORKSPACE", value_name = "DIRECTORY")]
    pub(crate) workspace: PathBuf,
    /// Folder of the run's transcript, in the workspace
    #[arg(long, env = "PADDOCK_TRANSCRIPT_DIR", value_name = "DIRECTORY")]
    pub(crate) transcript: PathBuf,
    /// Name of the run
    #[arg(
        long,
        env = "PADDOCK_RUN_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) run: String,
    /// Name of its workspace
    #[arg(
        long,
        env = "PADDOCK_WORKSPACE_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) workspace_name: String,
    /// Name of its template
    #[arg(
        long,
        env = "PADDOCK_TEMPLATE_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) template: String,
    /// Mode of its prompts: Batch or Interactive
    #[arg(
        long,
        env = "PADDOCK_MODE",
        default_value = "Batch",
        value_name = "MODE"
    )]
    pub(crate) mode: String,
    /// Image of the agent
    #[arg(
        long,
        env = "PADDOCK_HARNESS_IMAGE",
        default_value = "",
        value_name = "IMAGE"
    )]
    pub(crate) harness_image: String,
    /// URL of the broker, with https
    #[arg(long, env = "PADDOCK_BROKER_URL", value_name = "URL")]
    pub(crate) broker_url: String,
    /// File with the token for the broker; read again for each request
    #[arg(long, env = "PADDOCK_BROKER_TOKEN_PATH", value_name = "FILE")]
    pub(crate) token: PathBuf,
    /// CA bundle of the broker, as PEM
    #[arg(long, env = "OZ_BROKER_CA", value_name = "PEM", hide_env_values = true)]
    pub(crate) broker_ca: String,
    /// Source of the prompt: true for the broker, false if the kubelet mounts it
    #[arg(long, env = "OZ_FETCH_PROMPT", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) fetch_prompt: bool,
    /// Number of latest events to report
    #[arg(
        long,
        env = "OZ_RECENT_EVENTS",
        default_value_t = 50,
        value_name = "COUNT"
    )]
    pub(crate) recent_events: usize,
    /// File that the kubelet reads the termination message from
    #[arg(
        long,
        env = "OZ_TERMINATION_LOG",
        default_value = "/dev/termination-log",
        value_name = "FILE"
    )]
    pub(crate) termination_log: PathBuf,
}
