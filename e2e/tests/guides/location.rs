//! The places for following guides: a directory with the repository's files, the programs that a guide requires, and,
//! for most guides, a cluster with the prerequisites of the install guide: namespace `shop` with the Deployments `web`
//! and
//! `db`, and a node that has the images and a volume.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use oz_e2e::{harness_image_archive, image_archive, local_volume, repository};
use oz_testkit::{
    Cluster, ClusterOptions, Image, Node, Tool, Tools, USERS, cache_directory, cargo_binary,
    fixtures,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const NAMESPACE: &str = "shop";

/// The place of one test.
pub(crate) struct Location {
    directory: TempDir,
    /// The working directory of all shells.
    here: PathBuf,
    /// The users with a shell, and the environments of their shells.
    people: BTreeMap<&'static str, Vec<(&'static str, PathBuf)>>,
    /// The beginning of the command line of a shell.
    enter: Vec<&'static str>,
    _cluster: Option<Cluster>,
}

impl Location {
    /// Returns the repository itself, with the cache directory for programs of Kubernetes, and without a cluster. It
    /// has a
    /// separate network, since a guide names ports, and separate processes, which end with the shell.
    pub(crate) fn without_a_cluster() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        Tools::obtain(&Tool::CLUSTER)?;
        let cache = directory.path().join("oz");
        std::fs::create_dir(&cache)?;
        for entry in std::fs::read_dir(cache_directory()?)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("k8s-") {
                symlink(entry.path(), cache.join(entry.file_name()))?;
            }
        }
        let environment = vec![("XDG_CACHE_HOME", directory.path().to_owned())];
        let unshare = [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let up = ["sh", "-c", r#"ip link set lo up && exec "$@""#, "sh"];
        Ok(Self {
            here: repository().canonicalize()?,
            people: BTreeMap::from([("admin", environment)]),
            enter: [&unshare[..], &up].concat(),
            directory,
            _cluster: None,
        })
    }

    /// Returns a cluster, with a real node, without oz.
    pub(crate) async fn with_a_cluster() -> Result<Self> {
        let options = ClusterOptions {
            node: Node::Real,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start(options).await?;
        let image = tokio::task::spawn_blocking(image_archive).await??;
        cluster.import_image_archive(&image)?;
        let admin = cluster.client("admin").await?;
        let image = tokio::task::spawn_blocking(harness_image_archive).await??;
        cluster.import_image_archive(&image)?;
        cluster.import_image(Image::busybox("docker.io/library/busybox:1.37")?)?;
        local_volume(&cluster, &admin, "volume").await?;
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        for workload in ["web", "db"] {
            fixtures::deployment(&admin, NAMESPACE, workload, 2).await?;
        }

        let directory = tempfile::tempdir()?;
        let here = directory.path().join("oz");
        std::fs::create_dir(&here)?;
        for part in ["charts", "crates", "deploy", "docs", "examples"] {
            symlink(repository().canonicalize()?.join(part), here.join(part))?;
        }
        let path = programs(directory.path(), &cluster)?;
        let mut people = BTreeMap::new();
        for (user, _) in USERS {
            let home = directory.path().join(user);
            std::fs::create_dir(&home)?;
            let kubeconfig = home.join("kubeconfig");
            std::fs::write(&kubeconfig, kubeconfig_of(&cluster, user)?)?;
            let environment = vec![
                ("PATH", path.clone()),
                ("HOME", home.clone()),
                ("USER", user.into()),
                ("KUBECONFIG", kubeconfig),
            ];
            people.insert(user, environment);
        }
        Ok(Self {
            here,
            people,
            enter: Vec::new(),
            directory,
            _cluster: Some(cluster),
        })
    }

    /// Checks whether a user of this name has a shell here.
    pub(crate) fn knows(&self, user: &str) -> bool {
        self.people.contains_key(user)
    }

    /// Writes a file into the working directory of the shells.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.here.join(name);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    }

    /// Returns a bash of `user`.
    pub(crate) fn bash(&self, user: &str) -> Result<Command> {
        let environment = self
            .people
            .get(user)
            .with_context(|| format!("no {user}"))?;
        let bash = ["bash", "--norc", "--noprofile"];
        let words = [&self.enter[..], &bash].concat();
        let (program, arguments) = words.split_first().context("no shell")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.here);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
            .env("NO_COLOR", "1")
            .env("TMPDIR", self.directory.path());
        Ok(command)
    }
}

/// Returns a directory with kubectl, helm and ozctl, which precede the programs of the machine.
fn programs(directory: &Path, cluster: &Cluster) -> Result<PathBuf> {
    let programs = directory.join("bin");
    std::fs::create_dir(&programs)?;
    let tools = Tools::obtain(&[Tool::Helm])?;
    let ozctl = cargo_binary("ozctl")?;
    symlink(
        cluster.kubectl("admin").get_program(),
        programs.join("kubectl"),
    )?;
    symlink(tools.path(Tool::Helm)?, programs.join("helm"))?;
    symlink(&ozctl, programs.join("ozctl"))?;
    symlink(&ozctl, programs.join("kubectl-oz"))?;
    symlink(&ozctl, programs.join("kubectl_complete-oz"))?;
    let mut path = programs.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Ok(path.into())
}

/// Returns the kubeconfig of a user who works in one namespace; an administrator does not.
fn kubeconfig_of(cluster: &Cluster, user: &str) -> Result<String> {
    let text = std::fs::read_to_string(cluster.kubeconfig(user))?;
    if user == "admin" {
        return Ok(text);
    }
    let mut kubeconfig: Value = serde_json::from_str(&text).context("not JSON")?;
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
    Ok(kubeconfig.to_string())
}
