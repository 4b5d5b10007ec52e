//! The cluster of a test: started by this process, started earlier, or the user's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::access::{Access, Current};
use crate::audit::AuditLog;
use crate::compile::say;
use crate::files::write_private;
use crate::image::Image;
use crate::kubeconfig::file_name;
use crate::node::Node;
use crate::permissions::Recorder;
use crate::process::Process;
use crate::start::{Processes, Started, start_processes};
use crate::state::{StateDirectory, owner};
use crate::tool::Tool;
use crate::tools::Tools;
use crate::wait::eventually;

/// The users who have a kubeconfig from the start, and their groups: an administrator, two
/// developers and one user who is neither.
pub const USERS: [(&str, &[&str]); 4] = [
    ("admin", &["system:masters"]),
    ("alice", &["devs"]),
    ("bob", &["devs"]),
    ("mallory", &["interns"]),
];

/// The options of a started cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// The directory of the cluster's files; it is removed with the cluster. Without one, the
    /// cluster has a new directory under the system's temporary directory.
    pub directory: Option<PathBuf>,
    /// Additional flags for kube-apiserver after the testkit's own, each as `--name=value`.
    pub api_server_flags: Vec<String>,
    /// The minor version that kube-apiserver emulates, such as 32; by default its real version.
    pub emulated_minor: Option<u32>,
    /// The kind of node that pods run on.
    pub node: Node,
}

/// A running Kubernetes API server with one node, and the means to act on it as any user.
///
/// A cluster that this process started ends with this value: every process is killed and the
/// directory removed, also after a panic. If this process is killed, the kernel ends the others,
/// with the mounts and devices of a real node, and the next start removes the directory. The
/// cluster depends on no runtime: clients do; therefore create them in the test that uses them.
#[derive(Debug)]
pub struct Cluster {
    owner: u32,
    facts: Facts,
    directory: PathBuf,
    access: Access,
    /// The resources that end with this value; `None` when another process owns the cluster.
    owned: Mutex<Option<Owned>>,
}

/// The time that an API server may take until it is available again, on a machine under load.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(120);

const FACTS: &str = "cluster.json";

/// The data that another process needs to use the cluster; kept in the file [`FACTS`].
#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    server_url: String,
    node: Node,
    kubectl: PathBuf,
    components: BTreeMap<String, u32>,
    started: Timestamp,
    /// The version that the API server reports, such as `v1.35.4`.
    version: String,
}

/// The owned resources of a cluster. Dropped from top to bottom: the processes end before their
/// files are removed.
#[derive(Debug)]
struct Owned {
    processes: Processes,
    /// The recorder of permissions; `None` for a cluster without a log of the testkit.
    permissions: Option<Recorder>,
    _directory: StateDirectory,
}

impl Cluster {
    /// Starts etcd, the control plane and a node on free ports and waits until pods can run.
    /// Missing programs are compiled first, which takes minutes once and is reported on standard
    /// error.
    ///
    /// # Errors
    ///
    /// Fails when this machine lacks something ([`Node::check`]), or when a program cannot be compiled
    /// or started; the message ends with the end of its log.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let node = options.node;
        node.check()?;
        let tools = tokio::task::spawn_blocking(move || Tools::obtain(node.tools())).await??;
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
            Some(path) => StateDirectory::create(path)?,
            None => StateDirectory::temporary()?,
        };
        let path = directory.path().to_owned();
        let Started {
            server_url,
            version,
            authority,
            processes,
        } = start_processes(tools, &path, options).await?;
        let cluster = Self {
            owner: std::process::id(),
            facts: Facts {
                server_url,
                node: options.node,
                kubectl: tools.path(Tool::Kubectl)?.to_owned(),
                components: processes.describe(),
                started: Timestamp::now(),
                version,
            },
            access: Access::Certificates(Box::new(authority)),
            owned: Mutex::new(Some(Owned {
                processes,
                permissions: Some(Recorder::new(path.join("audit.log"))),
                _directory: directory,
            })),
            directory: path,
        };
        cluster.write_kubeconfigs()?;
        // Last: a process that attaches to the cluster finds all other files there.
        write_private(
            &cluster.directory.join(FACTS),
            &serde_json::to_vec(&cluster.facts)?,
        )?;
        say(&format!(
            "Kubernetes {} at {} started in {:.1} s ({})",
            cluster.version(),
            cluster.server_url(),
            began.elapsed().as_secs_f64(),
            cluster.directory.display(),
        ));
        Ok(cluster)
    }

    /// Returns a handle on the cluster in `directory`, which another process started and continues
    /// to own.
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

    /// Returns the cluster that the user's kubeconfig names (`KUBECONFIG`, `~/.kube/config`), after
    /// printing its name on standard error. Users are impersonated; there is no audit log.
    ///
    /// # Errors
    ///
    /// Fails when there is no kubeconfig or it names no cluster.
    pub async fn connect_current() -> Result<Self> {
        let directory = StateDirectory::temporary()?;
        let Current {
            access,
            server_url,
            context,
            version,
        } = Access::current().await?;
        say(&format!(
            "CLUSTER=current: using context {context}, {server_url}"
        ));
        let cluster = Self {
            owner: std::process::id(),
            facts: Facts {
                server_url,
                node: Node::Real,
                kubectl: "kubectl".into(),
                components: BTreeMap::new(),
                started: Timestamp::now(),
                version,
            },
            directory: directory.path().to_owned(),
            access,
            owned: Mutex::new(Some(Owned {
                processes: Processes::default(),
                permissions: None,
                _directory: directory,
            })),
        };
        std::fs::create_dir_all(cluster.directory.join("logs"))?;
        cluster.write_kubeconfigs()?;
        Ok(cluster)
    }

    fn write_kubeconfigs(&self) -> Result<()> {
        for (user, groups) in USERS {
            self.issue_kubeconfig(user, groups)?;
        }
        Ok(())
    }

    /// Returns the kind of node that its pods run on; the user's own cluster is assumed to have a
    /// real node.
    #[must_use]
    pub const fn node(&self) -> Node {
        self.facts.node
    }

    /// Imports `image` to the cluster's real node, for pods that name it.
    ///
    /// # Errors
    ///
    /// Fails when the node is not one that was started here or by `cargo xtask cluster up --node`.
    pub fn import_image(&self, image: Image) -> Result<()> {
        crate::node::import(&self.directory, image)
    }

    /// Imports the image in `archive`, a tar file as `docker save` or `cargo xtask image` writes
    /// it, to the cluster's real node.
    ///
    /// # Errors
    ///
    /// As [`Cluster::import_image`].
    pub fn import_image_archive(&self, archive: &Path) -> Result<()> {
        crate::node::import_archive(&self.directory, archive)
            .with_context(|| format!("failed to import the image in {}", archive.display()))
    }

    /// Lets the cluster's real node pull images from the registry HOST:PORT, which has no TLS.
    ///
    /// # Errors
    ///
    /// Fails when the node is not one of the testkit's, or its settings cannot be written.
    pub fn use_plain_registry(&self, registry: &str) -> Result<()> {
        crate::node::use_plain_registry(&self.directory, registry)
    }

    /// Calls `action` in a thread in the network of the cluster's real node. A socket that it makes belongs to the
    /// node, and stays there: pods reach it at an address of the node.
    ///
    /// # Errors
    ///
    /// Fails when the node is not one of the testkit's, when this process is not root, and as `action`.
    pub fn within_node_network<T: Send>(
        &self,
        action: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        crate::node::within(&self.directory, action)
    }

    /// Returns a command that runs `program` of this machine in the network of the cluster's real node.
    ///
    /// # Errors
    ///
    /// Fails when the node is not one of the testkit's.
    pub fn node_network_command(&self, program: &str) -> Result<Command> {
        crate::node::command(&self.directory, program)
    }

    /// Returns the URL of the API server, for example `https://127.0.0.1:24680`.
    #[must_use]
    pub fn server_url(&self) -> &str {
        &self.facts.server_url
    }

    /// Returns the version that the API server reports, such as `v1.35.4`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.facts.version
    }

    /// Returns the certificates (PEM) of the API server's authority.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.access.authority()
    }

    /// Returns the cluster's directory: `logs/`, `kubeconfigs/`, `audit.log`.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.directory
    }

    /// Returns the id of the process with which the cluster ends.
    #[must_use]
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the name and process id of each process of the cluster, as it was started; empty for
    /// the user's own cluster.
    #[must_use]
    pub const fn components(&self) -> &BTreeMap<String, u32> {
        &self.facts.components
    }

    /// Returns the time since which the cluster has been ready (the user's own: used).
    #[must_use]
    pub const fn started(&self) -> Timestamp {
        self.facts.started
    }

    /// Returns the path of the kubeconfig of one of [`USERS`], or of a user after a call of
    /// [`issue_kubeconfig`](Self::issue_kubeconfig).
    #[must_use]
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.join("kubeconfigs").join(file_name(user))
    }

    /// Issues a kubeconfig for any user, including service accounts:
    /// `system:serviceaccount:<namespace>:<name>` in the groups `system:serviceaccounts` and
    /// `system:serviceaccounts:<namespace>`. It contains a certificate, so the identity requires no
    /// object; the API server adds `system:authenticated`.
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

    /// Returns a kubeconfig for any user, with a certificate of X.509 version 1, as a plain
    /// `openssl x509 -req` makes it; `None` if the testkit does not hold the cluster's authority.
    ///
    /// # Errors
    ///
    /// Fails when the certificate cannot be made.
    pub fn kubeconfig_of_version_1(&self, user: &str, groups: &[&str]) -> Result<Option<Vec<u8>>> {
        let access = &self.access;
        access.kubeconfig_of_version_1(self.server_url(), user, groups)
    }

    /// Returns a client that acts as `user`, who has a kubeconfig. It neither throttles nor
    /// retries, so that a test sees each response of the server. It belongs to the runtime in which
    /// it is made.
    ///
    /// # Errors
    ///
    /// Fails when the user has no kubeconfig.
    pub async fn client(&self, user: &str) -> Result<kube::Client> {
        crate::access::client(&self.kubeconfig(user))
            .await
            .with_context(|| format!("failed to make a client for {user}"))
    }

    /// Returns a kubectl command of the cluster's version, acting as `user`.
    #[must_use]
    pub fn kubectl(&self, user: &str) -> Command {
        self.kubectl_of(&self.facts.kubectl, user)
    }

    /// Does the same as [`Cluster::kubectl`] with another version, which is `program`.
    #[must_use]
    pub fn kubectl_of(&self, program: &Path, user: &str) -> Command {
        let mut command = Command::new(program);
        // Its caches of API discovery must not be those of another cluster on the same port.
        command
            .env("KUBECONFIG", self.kubeconfig(user))
            .env("KUBECACHEDIR", self.directory.join("kubectl-cache"))
            // A kubectl lives for a moment, and tests start thousands of them.
            .env("GOGC", "400")
            .env("GOMEMLIMIT", "1GiB");
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

    /// Kills the API server without warning, starts it again and waits until it is ready. Returns
    /// the period in which clients could not rely on it: from the kill until now.
    ///
    /// # Errors
    ///
    /// Fails when this process did not start the cluster, or the server does not become available
    /// again.
    pub async fn restart_api_server(&self) -> Result<(Timestamp, Timestamp)> {
        let failed = "failed to restart the API server";
        let owned = || self.owned.lock();
        let killed = Timestamp::now();
        owned()
            .as_mut()
            .with_context(|| format!("{failed}: it is another process's"))?
            .processes
            .restart_api_server()?;
        let client = self.client("admin").await?;
        eventually(
            "the API server to be back",
            API_SERVER_TIMEOUT,
            async || {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                Ok(Some(client.request_text(request).await?))
            },
        )
        .await
        .context(failed)?;
        let back = Timestamp::now();
        if let Some(Owned {
            permissions: Some(permissions),
            ..
        }) = owned().as_mut()
        {
            permissions.was_blind(killed, back);
        }
        Ok((killed, back))
    }

    /// Returns the log of every request that the API server answered. The user's own cluster keeps
    /// none here: reading it fails.
    #[must_use]
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.directory.join("audit.log"))
    }

    pub(crate) fn end(&self) {
        drop(self.owned.lock().take());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

/// Checks whether another process took the same free port first.
fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
