//! The command line: verbs, and the variables that `oz_runs::pod` sets.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The oz container in the pod of a run.
#[derive(Debug, Parser)]
#[command(
    name = "oz-harness",
    version,
    long_about = "The container of oz in the pod of a run.\n\noz starts it as a sidecar, before \
        the agent. It fetches the prompt from the broker, converts the lines that the agent writes \
        into events, reports the last of them, and leaves the outcome of the run as its \
        termination message. Users do not start it; docs/reference/harness-contract.md defines the \
        contract for images."
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
        long_about = "Replace a runtime image: fetch the prompt, convert each line of the agent's \
            raw output into events, append these to events.jsonl in the transcript, write the same \
            lines to standard output, and report the last of them to the broker.\n\nOn SIGTERM it \
            reads the rest of the output, writes the termination message, sends the last report, \
            and exits with 0. It exits with 1 if the broker denies the prompt permanently."
    )]
    Runtime(Options),
    /// Fetch the prompt and report the events that a runtime image writes
    #[command(
        long_about = "Accompany a runtime image: fetch the prompt, read events.jsonl of the \
            transcript as the runtime appends to it, and report the last events to the broker. \
            Only the runtime writes events and standard output.\n\nSIGTERM and exit codes are \
            those of `runtime`."
    )]
    Report(Options),
    /// Exit with 0 once the agent may start
    #[command(
        long_about = "Startup probe of the container, which the kubelet runs before it starts the \
            agent: exits with 0 once the prompt is stored and the agent can write its raw output. \
            Exits with 1 at the timeout, with the cause on standard error; the container then \
            starts again."
    )]
    Ready {
        #[command(flatten)]
        shared: Shared,
        /// Time to wait, in seconds
        #[arg(long, default_value_t = 0, value_name = "SECONDS")]
        within: u8,
    },
    /// Let the connections of the run's pod through that policies grant, and inject credentials
    #[command(
        long_about = "Sidecar that receives all connections of the pod: reads the host that the \
            client names, decides by the grants that it fetches from the broker, resolves the \
            name, and forwards each request with the credential instead of its placeholder. It \
            also serves the pod's DNS. After 30s without a response of the broker it denies every \
            request and closes its connections. SIGTERM terminates it."
    )]
    Proxy(ProxyOptions),
    /// Exit with 0 once the proxy serves
    #[command(
        long_about = "Startup probe of the proxy, which the kubelet runs before it starts the next \
            container: exits with 0 once the proxy listens, has the grants of the run, and its \
            authority is stored. Exits with 1 at the timeout, with the cause on standard error."
    )]
    ProxyReady {
        /// Directory with the proxy's authority
        #[arg(
            long,
            env = "OZ_AUTHORITY_DIR",
            default_value = "/var/lib/oz/authority",
            value_name = "DIRECTORY"
        )]
        authority: PathBuf,
        /// Time to wait, in seconds
        #[arg(long, default_value_t = 0, value_name = "SECONDS")]
        within: u8,
    },
    /// Write a file of a transcript to standard output
    #[command(
        long_about = "Write a plain file to standard output, for `ozctl run logs`. No part of its \
            path may be a link, since the agent wrote the directory. Exits with 1 if the file does \
            not exist."
    )]
    Cat {
        /// The file, by its whole path
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Redirect the connections of the pod to its proxy, and refuse all others
    #[command(
        long_about = "First init container of a run that requires hosts or injected credentials, \
            as user 0 with the capability NET_ADMIN: writes the nf_tables table `oz` to the pod's \
            network namespace, reads it back, and tries to send packets out of the pod. TCP and \
            DNS arrive at the proxy's ports of the loopback address; all other packets are \
            rejected, except those of the users 1337 and 1338. It exits with 1 if the kernel \
            rejects the table or if a packet leaves the pod. A second start replaces the table."
    )]
    Netinit {
        /// File that the kubelet reads the termination message from
        #[arg(
            long,
            env = "OZ_TERMINATION_LOG",
            default_value = "/dev/termination-log",
            value_name = "FILE"
        )]
        termination_log: PathBuf,
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

/// The settings of the proxy.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProxyOptions {
    /// URL of the broker, with https
    #[arg(long, env = "OZ_BROKER_URL", value_name = "URL")]
    pub(crate) broker_url: String,
    /// CA bundle of the broker, as PEM
    #[arg(long, env = "OZ_BROKER_CA", value_name = "PEM", hide_env_values = true)]
    pub(crate) broker_ca: String,
    /// File with the proxy's token for the broker; read again for each request
    #[arg(long, env = "OZ_BROKER_TOKEN", value_name = "FILE")]
    pub(crate) token: PathBuf,
    /// Ranges of addresses that no connection may reach, in addition to private ones, with commas between them
    #[arg(
        long,
        env = "OZ_DENIED_RANGES",
        default_value = "",
        value_name = "CIDRS"
    )]
    pub(crate) denied: String,
    /// Directory for the proxy's authority, in a memory volume that only the proxy mounts
    #[arg(
        long,
        env = "OZ_AUTHORITY_DIR",
        default_value = "/var/lib/oz/authority",
        value_name = "DIRECTORY"
    )]
    pub(crate) authority: PathBuf,
    /// Directory for the certificates that the agent trusts
    #[arg(
        long,
        env = "OZ_TRUST_DIR",
        default_value = "/var/lib/oz/trust",
        value_name = "DIRECTORY"
    )]
    pub(crate) trust: PathBuf,
    /// Addresses of the pod, with commas between them
    #[arg(long, env = "OZ_POD_IPS", default_value = "", value_name = "ADDRESSES")]
    pub(crate) pod_ips: String,
    /// Name of the run
    #[arg(
        long,
        env = "PADDOCK_RUN_NAME",
        default_value = "",
        value_name = "NAME"
    )]
    pub(crate) run: String,
    /// Namespace of the run
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "",
        value_name = "NAMESPACE"
    )]
    pub(crate) namespace: String,
}
