//! The download of published programs, instead of their compilation. Only a program with the digest in the lock file is
//! used: the compilation is the answer to every failure.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::compile::{Module, SCRATCH, say};
use crate::tool::Tool;

/// The path of the lock file, from the root of the repository.
const LOCK_FILE: &str = "hack/tools/downloads.lock";
/// The variable that permits downloads (1) of programs that are not in the lock file, to learn their digests, or
/// disables all downloads (0).
const VARIABLE: &str = "OZ_DOWNLOAD";
/// The timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of all downloads of one module together.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program as its project publishes it.
#[derive(Debug, PartialEq, Eq)]
struct Published {
    /// The name in the lock file.
    name: String,
    /// The address, without the scheme.
    address: String,
    /// The path of the program in the archive; `None` if the file is the program.
    member: Option<String>,
}

/// The rules of downloads.
pub(crate) struct Downloads {
    /// The content of the lock file.
    lock: String,
    /// The scheme of all addresses, and the server in front of them in tests.
    origin: String,
    /// Whether downloads are permitted without a digest.
    learns: bool,
    /// Whether all downloads are disabled.
    is_disabled: bool,
    connect_timeout: Duration,
    timeout: Duration,
}

impl Downloads {
    /// Returns the rules of the lock file and the environment.
    pub(crate) fn from_environment() -> Self {
        let choice = std::env::var(VARIABLE).unwrap_or_default();
        Self {
            lock: include_str!("../../../../hack/tools/downloads.lock").to_owned(),
            origin: "https://".to_owned(),
            learns: choice == "1",
            is_disabled: choice == "0",
            connect_timeout: CONNECT_TIMEOUT,
            timeout: TIMEOUT,
        }
    }

    /// Returns the digest of a published program in the lock file.
    fn digest(&self, name: &str) -> Option<&str> {
        let lines = self.lock.lines().filter(|line| !line.starts_with('#'));
        let mut entries = lines.filter_map(|line| line.split_once("  "));
        entries.find_map(|(digest, of)| (of == name).then_some(digest))
    }

    /// Returns the stamp of a downloaded program; `None` if the program is compiled.
    pub(crate) fn stamp(&self, module: &Module, tool: Tool) -> Option<String> {
        let published = Published::find(module, tool, processor()?)?;
        let digest = self.digest(&published.name)?;
        Some(format!("{}\n{digest}\n", published.address))
    }

    /// Downloads programs into a new directory inside `cache`, and returns those that it then contains, each with its
    /// stamp; [`output`] returns their paths. Failures are reported.
    ///
    /// # Errors
    ///
    /// Fails when the directory cannot be created.
    pub(crate) fn fetch(
        &self,
        module: &Module,
        tools: &[Tool],
        cache: &Path,
    ) -> Result<(TempDir, Vec<(Tool, String)>)> {
        let scratch = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(cache)
            .with_context(|| format!("failed to make a directory in {}", cache.display()))?;
        let mut fetched = Vec::new();
        let deadline = Instant::now() + self.timeout;
        let published = |tool: &Tool| Published::find(module, *tool, processor()?);
        for (tool, published) in tools
            .iter()
            .filter_map(|tool| Some((*tool, published(tool)?)))
        {
            let is_wanted = self.learns || self.digest(&published.name).is_some();
            if self.is_disabled || !is_wanted {
                continue;
            }
            let (name, address) = (&published.name, &published.address);
            say(&format!("downloading {address}"));
            let archive = scratch.path().join("download");
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(error) = self.download(&published, left, &archive) {
                say(&format!(
                    "failed to download {name}: {error:#}; compiling the missing programs"
                ));
                // The next download would wait for the same server.
                break;
            }
            match self.unpack(&published, &archive, &scratch.path().join(tool.name())) {
                Ok(()) => fetched.extend(self.stamp(module, tool).map(|stamp| (tool, stamp))),
                Err(error) => say(&format!("{name} is not used: {error:#}")),
            }
        }
        Ok((scratch, fetched))
    }

    fn download(&self, published: &Published, left: Duration, archive: &Path) -> Result<()> {
        // Zero would mean no limit.
        ensure!(
            !left.is_zero(),
            "the downloads take longer than {:?}",
            self.timeout
        );
        let mut curl = Command::new("curl");
        curl.args([
            "--disable",
            "--fail",
            "--silent",
            "--show-error",
            "--location",
        ])
        .arg("--connect-timeout")
        .arg(self.connect_timeout.as_secs_f64().to_string())
        .arg("--max-time")
        .arg(left.as_secs_f64().to_string())
        .arg("--output")
        .arg(archive)
        .arg(format!("{}{}", self.origin, published.address))
        .stdin(Stdio::null());
        if self.origin == "https://" {
            curl.args(["--proto", "=https"]);
        }
        let output = curl.output().context("failed to run curl")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Checks the digest of a file, and writes the program in it to `program`.
    fn unpack(&self, published: &Published, archive: &Path, program: &Path) -> Result<()> {
        let name = &published.name;
        let found = digest(archive)?;
        let Some(expected) = self.digest(name) else {
            bail!(
                "{LOCK_FILE} has no digest of it. If you trust this download, add the line\n{found}  {name}"
            );
        };
        ensure!(
            found == expected,
            "its digest is {found}, and {LOCK_FILE} has {expected}. The published file changed, or the \
             download is not the published file"
        );
        match &published.member {
            None => std::fs::rename(archive, program)?,
            Some(member) => extract(archive, member, program)?,
        }
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

impl Published {
    /// Returns the published form of a program for Linux with this processor; `None` if the program is compiled.
    fn find(module: &Module, tool: Tool, processor: &str) -> Option<Self> {
        let version = module.version;
        let name = tool.name();
        match (module.name, tool) {
            ("kwok", Tool::Kwok) => Some(Self {
                name: format!("kwok-v{version}-linux-{processor}"),
                address: format!(
                    "github.com/kubernetes-sigs/kwok/releases/download/v{version}/kwok-linux-{processor}"
                ),
                member: None,
            }),
            ("Kubernetes", Tool::Etcd) => {
                let version = etcd_version(module)?;
                let stem = format!("etcd-{version}-linux-{processor}");
                Some(Self {
                    name: format!("{stem}.tar.gz"),
                    address: format!(
                        "github.com/etcd-io/etcd/releases/download/{version}/{stem}.tar.gz"
                    ),
                    member: Some(format!("{stem}/etcd")),
                })
            }
            ("Kubernetes", _) => Some(Self {
                name: format!("{name}-v{version}-linux-{processor}"),
                address: format!("dl.k8s.io/v{version}/bin/linux/{processor}/{name}"),
                member: None,
            }),
            _ => None,
        }
    }
}

/// Returns the version of etcd that a module pins.
fn etcd_version(module: &Module) -> Option<&'static str> {
    let mut lines = module.go_mod.lines();
    lines.find_map(|line| {
        let mut words = line.split_whitespace();
        let version = words.find(|word| *word == "go.etcd.io/etcd/server/v3");
        version.and(words.next())
    })
}

/// Returns the name of this machine's processor in published names; `None` if none of the programs is published for this
/// machine.
fn processor() -> Option<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some("amd64"),
        ("linux", "aarch64") => Some("arm64"),
        _ => None,
    }
}

fn digest(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let bytes = hash.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the file with this path in an archive to `program`.
fn extract(archive: &Path, member: &str, program: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.as_ref() == Path::new(member) {
            io::copy(&mut entry, &mut File::create(program)?)?;
            return Ok(());
        }
    }
    bail!("it contains no {member}")
}

/// Returns the path of a program in the directory that [`Downloads::fetch`] returns.
pub(crate) fn output(scratch: &Path, tool: Tool) -> PathBuf {
    scratch.join(tool.name())
}

#[cfg(test)]
mod tests;
