//! The cluster a test talks to: started here, started earlier, or the user's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::audit::AuditLog;
use crate::compile::say;
use crate::components::Component;
use crate::files::write_private;
use crate::kubeconfig::file_name;
use crate::process::Process;
use crate::start::{Started, start_processes};
use crate::state::{StateDirectory, owner};
use crate::tools::{Tool, Tools};

/// Who has a kubeconfig from the start, and the groups they are in: an administrator, two developers
/// and one who is neither.
pub const USERS: [(&str, &[&str]); 4] = [
    ("admin", &["system:masters"]),
    ("alice", &["devs"]),
    ("bob", &["devs"]),
    ("mallory", &["interns"]),
];

/// What a started cluster may do differently.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Where the cluster keeps its files; removed with it. Without one, a new directory under the
    /// system's temporary directory.
    pub directory: Option<PathBuf>,
    /// Flags for kube-apiserver after our own, each as `--name=value`.
    pub api_server_flags: Vec<String>,
}

/// A running Kubernetes API server with one node, and the means to talk to it as anybody.
///
/// A cluster started here ends with this value: every process is killed and the directory removed,
/// also after a panic. If this process is killed, the kernel ends the others, and the next start
/// removes the directory. It depends on no runtime: clients do, so make them in the test that uses
/// them.
#[derive(Debug)]
pub struct Cluster {
    owner: u32,
    facts: Facts,
    directory: PathBuf,
    access: Access,
    /// What ends with this value; nothing when the cluster is another process's.
    owned: Mutex<Option<Owned>>,
}

const FACTS: &str = "cluster.json";

/// What another process needs to know to use the cluster as well; kept in the file [`FACTS`].
#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    server_url: String,
    kubectl: PathBuf,
    components: BTreeMap<String, u32>,
    started: Timestamp,
}

/// Dropped from top to bottom: the processes end before their files go.
#[derive(Debug)]
struct Owned {
    _components: Vec<Component>,
    _directory: StateDirectory,
}

impl Cluster {
    /// Starts etcd, the control plane and kwok on free ports and waits until pods can run. What has
    /// to be compiled is compiled first, which takes minutes once and says so on standard error.
    ///
    /// # Errors
    ///
    /// Fails when a program cannot be compiled or started; the message ends with the end of its log.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let tools = tokio::task::spawn_blocking(|| Tools::obtain(&Tool::CLUSTER)).await??;
        let mut attempts = 3;
        loop {
            match Self::start_once(&tools, &options).await {
                Err(error) if attempts > 1 && is_port_taken(&error) => attempts -= 1,
                result => return result,
            }
        }
    }

    async fn start_once(tools: &Tools, options: &ClusterOptions) -> Result<Self> {
        let began = Instant::now();
        let directory = match &options.directory {
            Some(path) => StateDirectory::at(path)?,
            None => StateDirectory::temporary()?,
        };
        let path = directory.path().to_owned();
        let Started {
            server_url,
            version,
            authority,
            components,
        } = start_processes(tools, &path, &options.api_server_flags).await?;
        let cluster = Self {
            owner: std::process::id(),
            facts: Facts {
                server_url,
                kubectl: tools.path(Tool::Kubectl)?.to_owned(),
                components: components.iter().map(Component::describe).collect(),
                started: Timestamp::now(),
            },
            directory: path,
            access: Access::Certificates(Box::new(authority)),
            owned: Mutex::new(Some(Owned {
                _components: components,
                _directory: directory,
            })),
        };
        cluster.write_kubeconfigs()?;
        // Last: whoever attaches finds everything else there.
        write_private(
            &cluster.directory.join(FACTS),
            &serde_json::to_vec(&cluster.facts)?,
        )?;
        say(&format!(
            "Kubernetes {version} at {} started in {:.1} s ({})",
            cluster.server_url(),
            began.elapsed().as_secs_f64(),
            cluster.directory.display(),
        ));
        Ok(cluster)
    }

    /// A handle on the cluster that another process started in `directory` and goes on to own.
    ///
    /// # Errors
    ///
    /// Fails when no cluster runs there.
    pub fn attach(directory: &Path) -> Result<Self> {
        let Some(owner) = owner(directory) else {
            bail!(
                "failed to find a running cluster in {}",
                directory.display()
            );
        };
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name))
                .with_context(|| format!("failed to read {name}: is the cluster still starting?"))
        };
        let facts: Facts = serde_json::from_str(&read(FACTS)?).context("failed to parse it")?;
        Ok(Self {
            owner,
            facts,
            directory: directory.to_owned(),
            access: Access::attach(&directory.join("pki"))?,
            owned: Mutex::new(None),
        })
    }

    /// The cluster that the user's kubeconfig names (`KUBECONFIG`, `~/.kube/config`), after saying
    /// on standard error which one it is. Users are impersonated; there is no audit log.
    ///
    /// # Errors
    ///
    /// Fails when there is no kubeconfig or it names no cluster.
    pub async fn connect_current() -> Result<Self> {
        let directory = StateDirectory::temporary()?;
        let (access, server_url, context) = Access::current().await?;
        say(&format!(
            "CLUSTER=current: using context {context}, {server_url}"
        ));
        let cluster = Self {
            owner: std::process::id(),
            facts: Facts {
                server_url,
                kubectl: "kubectl".into(),
                components: BTreeMap::new(),
                started: Timestamp::now(),
            },
            directory: directory.path().to_owned(),
            access,
            owned: Mutex::new(Some(Owned {
                _components: Vec::new(),
                _directory: directory,
            })),
        };
        std::fs::create_dir_all(cluster.directory.join("logs"))?;
        cluster.write_kubeconfigs()?;
        Ok(cluster)
    }

    /// The cluster that the variable `CLUSTER` names: a new one when it is unset or empty, `current`
    /// for [`Cluster::connect_current`], `up` for the one that `cargo xtask cluster up` started.
    ///
    /// # Errors
    ///
    /// Fails like those, and for any other value.
    pub async fn from_environment() -> Result<Self> {
        match std::env::var("CLUSTER").unwrap_or_default().as_str() {
            "" => Self::start(ClusterOptions::default()).await,
            "current" => Self::connect_current().await,
            "up" => Self::attach(&crate::development_directory()?),
            other => bail!("failed to choose a cluster: CLUSTER={other} is none of current, up"),
        }
    }

    /// The cluster of this process, as [`Cluster::from_environment`] chooses it, started by the
    /// first call. For test binaries with many tests; it ends with the process.
    ///
    /// # Errors
    ///
    /// Fails, for every caller alike, when the cluster failed to start.
    pub async fn shared() -> Result<&'static Self> {
        tokio::task::spawn_blocking(|| {
            SHARED
                .get_or_init(start_shared)
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error}"))
        })
        .await?
    }

    fn write_kubeconfigs(&self) -> Result<()> {
        for (user, groups) in USERS {
            self.issue_kubeconfig(user, groups)?;
        }
        Ok(())
    }

    /// Where the API server is, for example `https://127.0.0.1:24680`.
    #[must_use]
    pub fn server_url(&self) -> &str {
        &self.facts.server_url
    }

    /// The certificates, PEM, that vouch for the API server.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.access.authority()
    }

    /// The cluster's directory: `logs/`, `kubeconfigs/`, `audit.log`.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.directory
    }

    /// The process that the cluster ends with.
    #[must_use]
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// The name and process id of each process of the cluster; empty for the user's own.
    #[must_use]
    pub const fn components(&self) -> &BTreeMap<String, u32> {
        &self.facts.components
    }

    /// Since when the cluster has been ready (the user's own: used).
    #[must_use]
    pub const fn started(&self) -> Timestamp {
        self.facts.started
    }

    /// The kubeconfig of one of [`USERS`], or of a user that
    /// [`issue_kubeconfig`](Self::issue_kubeconfig) was called for.
    #[must_use]
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.join("kubeconfigs").join(file_name(user))
    }

    /// A kubeconfig for anybody, including service accounts:
    /// `system:serviceaccount:<namespace>:<name>` in the groups `system:serviceaccounts` and
    /// `system:serviceaccounts:<namespace>`. A certificate, so the identity needs no object; the API
    /// server adds `system:authenticated`.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written.
    pub fn issue_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.kubeconfig(user);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("failed to make {}", directory.display()))?;
        }
        write_private(
            &path,
            &self.access.kubeconfig(self.server_url(), user, groups)?,
        )?;
        Ok(path)
    }

    /// A client that acts as `user`, who has a kubeconfig. It neither throttles nor retries, so that
    /// a test sees what the server answered. It belongs to the runtime that it is made in.
    ///
    /// # Errors
    ///
    /// Fails when the user has no kubeconfig.
    pub async fn client(&self, user: &str) -> Result<kube::Client> {
        crate::access::client(&self.kubeconfig(user))
            .await
            .with_context(|| format!("failed to make a client for {user}"))
    }

    /// kubectl of the cluster's version, acting as `user`.
    #[must_use]
    pub fn kubectl(&self, user: &str) -> Command {
        let mut command = Command::new(&self.facts.kubectl);
        // Its caches of API discovery must not be those of another cluster on the same port.
        command
            .env("KUBECONFIG", self.kubeconfig(user))
            .env("KUBECACHEDIR", self.directory.join("kubectl-cache"));
        command
    }

    /// Starts `command` as a process that ends with the returned value, with its output in `logs/`.
    ///
    /// # Errors
    ///
    /// As [`Process::spawn`].
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        Process::spawn(name, &self.directory.join("logs"), command)
    }

    /// The log of every request that the API server answered. The user's own cluster keeps none here:
    /// reading it fails.
    #[must_use]
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.directory.join("audit.log"))
    }

    fn end(&self) {
        drop(
            self.owned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whoever chose the same free port was faster.
fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

static SHARED: OnceLock<std::result::Result<Cluster, String>> = OnceLock::new();

fn start_shared() -> std::result::Result<Cluster, String> {
    let started = || -> Result<Cluster> {
        // A runtime of its own: those of the tests end while the cluster goes on.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let cluster = runtime.block_on(Cluster::from_environment())?;
        // Statics are never dropped.
        crate::system::at_exit(end_shared);
        Ok(cluster)
    };
    started().map_err(|error| format!("{error:#}"))
}

extern "C" fn end_shared() {
    let _ = std::panic::catch_unwind(|| {
        if let Some(Ok(cluster)) = SHARED.get() {
            cluster.end();
        }
    });
}
