//! `cargo xtask krew`: the manifest by which krew installs `kubectl oz`, created from the archives of a
//! release: their digests are in it, so they must exist first.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use xtask::screen::Screen;

use crate::digest::digest;

/// The released platforms: operating system and processor, as Go and krew name them.
pub(crate) const PLATFORMS: [(&str, &str); 4] = [
    ("linux", "amd64"),
    ("linux", "arm64"),
    ("darwin", "amd64"),
    ("darwin", "arm64"),
];

/// The archives, and the address of their release.
#[derive(Args)]
pub(crate) struct Options {
    /// The directory with kubectl-oz-OS-ARCH.tar.gz, each with the program kubectl-oz, LICENSE and NOTICES.
    archives: PathBuf,
    /// The address that the archives' names follow, such as that of a release.
    #[arg(long)]
    url: String,
    /// The project's home page.
    #[arg(long)]
    homepage: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let yaml = manifest_of(&options.archives, &options.url, &options.homepage)?;
    Screen::stdout().line(yaml.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the manifest for the archives in a directory, at addresses below `url`.
///
/// # Errors
/// When there is no archive.
pub(crate) fn manifest_of(archives: &Path, url: &str, homepage: &str) -> Result<String> {
    let mut found = Vec::new();
    for (os, arch) in PLATFORMS {
        let path = archives.join(archive(os, arch));
        if path.exists() {
            found.push((os, arch, digest(&path)?));
        }
    }
    ensure!(
        !found.is_empty(),
        "no archive kubectl-oz-OS-ARCH.tar.gz in {}",
        archives.display()
    );
    let manifest = manifest(url, homepage, &found);
    serde_saphyr::to_string(&manifest).context("failed to write the manifest as YAML")
}

fn archive(os: &str, arch: &str) -> String {
    format!("kubectl-oz-{os}-{arch}.tar.gz")
}

fn manifest(url: &str, homepage: &str, archives: &[(&str, &str, String)]) -> Value {
    let platforms: Vec<Value> = archives
        .iter()
        .map(|(os, arch, digest)| {
            json!({
                "selector": {"matchLabels": {"os": os, "arch": arch}},
                "uri": format!("{}/{}", url.trim_end_matches('/'), archive(os, arch)),
                "sha256": digest,
                "bin": "kubectl-oz",
                "files": [
                    {"from": "kubectl-oz", "to": "."},
                    {"from": "LICENSE", "to": "."},
                    {"from": "NOTICES", "to": "."},
                ],
            })
        })
        .collect();
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "oz"},
        "spec": {
            "version": concat!("v", env!("CARGO_PKG_VERSION")),
            "homepage": homepage,
            "shortDescription": "Request time-limited access to pods",
            "description": "Asks oz for access to a pod, opens the shell when it is granted, and gives \
                            the access back when the shell closes.\n",
            // krew links no second name for a program.
            "caveats": "oz must be installed in the cluster; `kubectl oz doctor` checks that.\n\
                        For completion of `kubectl oz` by kubectl 1.26 or later:\n  \
                        ln -s kubectl-oz \"${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-oz\"\n",
            "platforms": platforms,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_each_archive_with_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(archive("linux", "arm64"));
        std::fs::write(&path, "archive").unwrap();
        let archives = [("linux", "arm64", digest(&path).unwrap())];
        let manifest = manifest(
            "https://example.test/v1/",
            "https://example.test",
            &archives,
        );
        let platform = &manifest["spec"]["platforms"][0];
        assert_eq!(
            platform["uri"],
            "https://example.test/v1/kubectl-oz-linux-arm64.tar.gz"
        );
        assert_eq!(platform["selector"]["matchLabels"]["arch"], "arm64");
        assert_eq!(platform["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(manifest["spec"]["version"], "v0.1.0");
        let caveats = manifest["spec"]["caveats"].as_str().unwrap();
        let link = "\n  ln -s kubectl-oz \"${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-oz\"\n";
        assert!(caveats.ends_with(link), "{caveats}");
    }
}
