//! `cargo xtask cluster up | status | down`: the testkit's cluster, owned by a process in the background that
//! this program starts from itself.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use oz_testkit::fixtures::IMAGE;
use oz_testkit::{Cluster, ClusterOptions, Node, Tools, USERS, eventually, owner, stop};
use tokio::signal::unix::{SignalKind, signal};

/// The timeouts of the start, with the compilation of programs, and of the end.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// What to do with the development cluster.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Start it, compiling Kubernetes first if that has not been done, and say how to use it.
    Up(Start),
    /// Say whether it runs (exit code 0) or not (exit code 1), and where.
    Status(DirectoryFlag),
    /// End it and remove all it kept.
    Down(DirectoryFlag),
    /// Own the cluster until SIGTERM; `up` runs this in the background.
    #[command(hide = true)]
    Serve(Start),
}

/// The cluster to start.
#[derive(Args)]
pub(crate) struct Start {
    #[command(flatten)]
    directory: DirectoryFlag,
    /// With a real node, which runs pods, also for `kubectl exec`. Requires root, and reports other requirements.
    #[arg(long)]
    node: bool,
}

impl Start {
    fn node(&self) -> Node {
        if self.node { Node::Real } else { Node::Kwok }
    }
}

/// The directory of the cluster.
#[derive(Args)]
pub(crate) struct DirectoryFlag {
    /// The cluster's directory [default: oz/cluster in the user's cache directory]
    #[arg(long)]
    directory: Option<PathBuf>,
}

impl DirectoryFlag {
    fn directory(&self) -> Result<PathBuf> {
        match &self.directory {
            Some(path) => std::path::absolute(path).context("failed to find the directory"),
            None => oz_testkit::development_directory(),
        }
    }
}

pub(crate) fn run(action: Action) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match action {
            Action::Up(start) => up(&start.directory.directory()?, start.node()).await,
            Action::Status(directory) => status(&directory.directory()?).await,
            Action::Down(directory) => down(&directory.directory()?).await,
            Action::Serve(start) => serve(start.directory.directory()?, start.node()).await,
        }
    })
}

async fn up(directory: &Path, node: Node) -> Result<ExitCode> {
    if let Ok(cluster) = Cluster::attach(directory) {
        return say(&format!(
            "The cluster is running already.\n\n{}",
            usage(&cluster)
        ));
    }
    // In this process, where the progress is visible, rather than in the background.
    node.check()?;
    tokio::task::spawn_blocking(move || Tools::obtain(node.tools())).await??;
    let log = directory.with_extension("log");
    let began = Instant::now();
    let mut supervisor = start_supervisor(directory, node, &log)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ready = eventually("the cluster to start", START_TIMEOUT, async || {
        if let Some(status) = supervisor.try_wait()? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Ok(Some(Err(anyhow::anyhow!(
                "its process ended with {status}:\n{said}"
            ))));
        }
        Cluster::attach(directory).map(|cluster| Some(Ok(cluster)))
    });
    let outcome = tokio::select! {
        outcome = ready => outcome.flatten().context("failed to start the cluster"),
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted: the cluster is ended")),
    };
    match outcome {
        Ok(cluster) => {
            let seconds = began.elapsed().as_secs_f64();
            say(&format!(
                "Started in {seconds:.1} s.\n\n{}",
                usage(&cluster)
            ))
        }
        Err(error) => {
            // Only oz's own: another `up` may have been faster, and its cluster is not affected.
            let pid = supervisor.id();
            supervisor.kill()?;
            supervisor.wait()?;
            if owner(directory).is_none_or(|owner| owner == pid) {
                stop(directory, STOP_TIMEOUT).await?;
            }
            Err(error)
        }
    }
}

fn start_supervisor(directory: &Path, node: Node, log: &Path) -> Result<Child> {
    let failed = || {
        format!(
            "failed to start the cluster's process; its log is {}",
            log.display()
        )
    };
    if let Some(parent) = log.parent() {
        std::fs::create_dir_all(parent).with_context(failed)?;
    }
    let output = File::create(log).with_context(failed)?;
    Command::new(std::env::current_exe().with_context(failed)?)
        .args(["cluster", "serve", "--directory"])
        .arg(directory)
        .args((node == Node::Real).then_some("--node"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output.try_clone().with_context(failed)?)
        .stderr(output)
        .spawn()
        .with_context(failed)
}

async fn serve(directory: PathBuf, node: Node) -> Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Fails when it leads a group already, as when started by hand from a shell: then the terminal's Ctrl-C
    // is intended for it.
    let _ = oz_testkit::leave_the_terminal();
    let options = ClusterOptions {
        directory: Some(directory),
        node,
        ..ClusterOptions::default()
    };
    let run = async {
        let _cluster = Cluster::start(options).await?;
        std::future::pending().await
    };
    tokio::select! {
        outcome = run => outcome,
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
    }
}

async fn status(directory: &Path) -> Result<ExitCode> {
    let Ok(cluster) = Cluster::attach(directory) else {
        say("The cluster is not running; `cargo xtask cluster up` starts it.\n")?;
        return Ok(ExitCode::FAILURE);
    };
    let version = cluster.client("admin").await?.apiserver_version().await;
    let Ok(version) = version else {
        bail!(
            "failed to reach {}: see {}/logs",
            cluster.server_url(),
            directory.display()
        );
    };
    let mut table = String::new();
    let age = jiff::Timestamp::now()
        .duration_since(cluster.started())
        .as_secs();
    writeln!(table, "SERVER      {}", cluster.server_url())?;
    writeln!(table, "VERSION     {}", version.git_version)?;
    writeln!(
        table,
        "SINCE       {:.0} ({}m{:02}s)",
        cluster.started(),
        age / 60,
        age % 60
    )?;
    writeln!(table, "DIRECTORY   {}", directory.display())?;
    for (user, _) in USERS {
        writeln!(
            table,
            "KUBECONFIG  {user:8} {}",
            cluster.kubeconfig(user).display()
        )?;
    }
    writeln!(
        table,
        "PROCESS     {:<8} owner of the others",
        cluster.owner()
    )?;
    for (name, pid) in cluster.components() {
        writeln!(table, "PROCESS     {pid:<8} {name}")?;
    }
    say(&table)
}

async fn down(directory: &Path) -> Result<ExitCode> {
    stop(directory, STOP_TIMEOUT).await?;
    let _ = std::fs::remove_file(directory.with_extension("log"));
    say("The cluster is down.\n")
}

fn usage(cluster: &Cluster) -> String {
    let pods = match cluster.node() {
        Node::Kwok => "Processes of this machine stand in for containers.".to_owned(),
        Node::Real => format!("Its node is real, and has image {IMAGE}, a busybox."),
    };
    let mut text = format!(
        "Kubernetes is at {}. {pods}\n\n  export KUBECONFIG={}\n\n",
        cluster.server_url(),
        cluster.kubeconfig("admin").display()
    );
    for (user, groups) in USERS {
        let path = cluster.kubeconfig(user);
        let _ = writeln!(
            text,
            "  {user:8} ({}) {}",
            groups.join(", "),
            path.display()
        );
    }
    let kubectl = cluster.kubectl("admin");
    let _ = writeln!(
        text,
        "\n  kubectl  {}",
        Path::new(kubectl.get_program()).display()
    );
    text.push_str(
        "\n`cargo xtask cluster down` ends it. `CLUSTER=up cargo test` tests against it.\n",
    );
    text
}

fn say(text: &str) -> Result<ExitCode> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
