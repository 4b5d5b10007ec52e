//! A release as its users get it: the files, and a registry that contains images and chart. The registry is filled by the
//! commands of `release.yml`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{Gate, Scene, TEMPLATE, helm, rehearsed_release, repository, run};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Image, Process, Tool, Tools, eventually};
use tempfile::TempDir;

use crate::gate::said;

/// The version of the release.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of the chart of the next release.
pub(super) const NEXT: &str = "99.0.0";

/// A published release.
pub(super) struct Release {
    pub(super) cluster: &'static Cluster,
    /// The prefix of the names of images and chart.
    repository: String,
    /// The directory with the files.
    files: PathBuf,
    programs: Tools,
    /// The home directory and the working directory of the user.
    home: TempDir,
    folder: TempDir,
    _registry: Process,
    _blobs: TempDir,
}

impl Release {
    /// Starts a registry without TLS at an address that the node reaches, builds a release, and pushes it.
    pub(super) async fn publish(cluster: &'static Cluster) -> Result<Self> {
        let programs = Tools::obtain(&[Tool::Crane, Tool::Helm])?;
        let address = Gate::free_address(cluster)?.to_string();
        let blobs = TempDir::new()?;
        let mut serve = Command::new(programs.path(Tool::Crane)?);
        serve.args(["registry", "serve", "--address", &address, "--disk"]);
        serve.arg(blobs.path());
        let mut registry = cluster.spawn("registry", serve)?;
        let is_serving = |line: &str| line.contains("serving on port");
        registry
            .wait_for_line("its port", CONDITION_TIMEOUT, is_serving)
            .await?;
        cluster.use_plain_registry(&address)?;
        let repository = format!("{address}/owner/oz");
        let release = Self {
            cluster,
            files: rehearsed_release(&repository)?,
            repository,
            programs,
            home: TempDir::new()?,
            folder: TempDir::new()?,
            _registry: registry,
            _blobs: blobs,
        };
        // A second run of the job pushes the same digests.
        let digests = release.push()?;
        let again = release.push()?;
        ensure!(
            digests == again,
            "the second push to {} changed a digest: {digests:?}, {again:?}",
            release.repository
        );
        Ok(release)
    }

    /// Pushes images and chart, and returns their digests.
    fn push(&self) -> Result<Vec<String>> {
        let mut search = Vec::new();
        for tool in [Tool::Crane, Tool::Helm] {
            search.extend(self.programs.path(tool)?.parent().map(Path::to_owned));
        }
        let own = std::env::var_os("PATH").unwrap_or_default();
        search.extend(std::env::split_paths(&own));
        let mut push = Command::new("bash");
        push.arg(repository().join(".github/push-release"))
            .arg(&self.repository)
            .arg(&self.files)
            .arg("--plain-http")
            .env("PATH", std::env::join_paths(search)?)
            .env("HOME", self.home.path())
            .env_remove("GITHUB_OUTPUT");
        run(push).context("failed to push the release")?;
        ["oz", "oz-harness", "charts/oz"]
            .iter()
            .map(|name| {
                let mut digest = Command::new(self.programs.path(Tool::Crane)?);
                digest
                    .arg("digest")
                    .arg(format!("{}/{name}:{VERSION}", self.repository))
                    .env("HOME", self.home.path());
                run(digest)
            })
            .collect()
    }

    /// Pushes the chart once more, as the chart of the next release, which has the same images.
    pub(super) fn push_next(&self) -> Result<()> {
        let work = TempDir::new()?;
        let helm = |arguments: &[&str]| {
            let mut helm = self.helm()?;
            helm.current_dir(work.path()).args(arguments);
            run(helm)
        };
        let (chart, charts) = (self.chart(), format!("oci://{}/charts", self.repository));
        let pull = [
            "pull",
            &chart,
            "--version",
            VERSION,
            "--plain-http",
            "--untar",
        ];
        helm(&pull)?;
        helm(&["package", "oz", "--version", NEXT, "--app-version", VERSION])?;
        let package = format!("oz-{NEXT}.tgz");
        helm(&["push", &package, &charts, "--plain-http"]).map(drop)
    }

    /// Returns helm as an administrator runs it, from an empty directory.
    pub(super) fn helm(&self) -> Result<Command> {
        let mut helm = helm(self.cluster)?;
        helm.env("HOME", self.home.path())
            .current_dir(self.folder.path());
        Ok(helm)
    }

    /// Returns the address of the chart.
    pub(super) fn chart(&self) -> String {
        format!("oci://{}/charts/oz", self.repository)
    }

    /// Returns the path of a file of the release.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// Checks that this is the name of an image of the release.
    pub(super) fn has_image(&self, name: &str) -> bool {
        let version = format!(":{VERSION}");
        name.starts_with(&self.repository) && name.ends_with(&version)
    }

    /// Verifies the files by their digests, unpacks ozctl, and starts it without a cluster.
    pub(super) fn ozctl(&self) -> Result<Ozctl> {
        let mut check = Command::new("sha256sum");
        check
            .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
            .current_dir(&self.files);
        run(check).context("a file of the release has another digest")?;
        let directory = TempDir::new()?;
        let archive = format!("ozctl-linux-{}.tar.gz", Image::architecture());
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(self.file(&archive));
        tar.arg("-C").arg(directory.path());
        run(tar)?;
        let ozctl = Ozctl {
            cluster: self.cluster,
            directory,
        };
        let mut start = Command::new("bash");
        start
            .arg(repository().join(".github/start-ozctl"))
            .arg(ozctl.program());
        run(start).context("failed to start the released ozctl")?;
        Ok(ozctl)
    }
}

/// The released ozctl.
pub(super) struct Ozctl {
    cluster: &'static Cluster,
    directory: TempDir,
}

impl Ozctl {
    fn program(&self) -> PathBuf {
        self.directory.path().join("ozctl")
    }

    /// Runs ozctl in a scene.
    pub(super) async fn run(&self, scene: &Scene, user: &str, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.program());
        command
            .args(["--namespace", scene.name()])
            .args(words)
            .env("KUBECONFIG", self.cluster.kubeconfig(user))
            .env("USER", user)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// Checks that alice gets into a pod of the scene, and mallory does not.
    pub(super) async fn lets_alice_in(&self, scene: &Scene) -> Result<()> {
        let target = format!("template/{TEMPLATE}");
        let words = ["exec", &target, "--", "hostname"];
        let hostname = eventually("alice to get in by ozctl", CONDITION_TIMEOUT, async || {
            let output = self.run(scene, "alice", &words).await?;
            ensure!(output.status.success(), "{}", said(&output));
            Ok(Some(String::from_utf8(output.stdout)?))
        })
        .await?;
        let mut pods = scene.pods.iter();
        let is_pod = pods.any(|pod| pod.metadata.name.as_deref() == Some(hostname.trim()));
        ensure!(is_pod, "alice is in {hostname:?}, which is no pod of web");
        let refused = self.run(scene, "mallory", &words).await?;
        ensure!(
            !refused.status.success(),
            "mallory got in: {}",
            said(&refused)
        );
        Ok(())
    }
}
