//! The programs of a cluster, with those that install oz on it, and their sources:
//! `KUBEBUILDER_ASSETS`, or this project's cache, which is filled by downloading the programs of
//! `hack/tools/downloads.lock` and compiling the Go modules of `hack/tools`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::compile::{self, Module};
use crate::download::{self, Downloads};
use crate::files::{cache_directory, write_private};
use crate::kubernetes::{self, Kubernetes};
use crate::modules::{
    AGE, CLIENT_GO, CRANE, HELM, KUBECONFORM, KUBECTL_1_30, KUBECTL_1_32, KUBERNETES_VERSION, KWOK,
    MODULES, OPA, RUN_CLIENT, WSSTREAM,
};
use crate::tool::Tool;

impl Tool {
    /// Returns the module of `hack/tools` that pins the program for a cluster of this version: the requirements of the
    /// modules conflict.
    const fn module(self, kubernetes: Kubernetes) -> &'static Module {
        match self {
            Self::Kwok => &KWOK,
            Self::Helm => &HELM,
            Self::Crane => &CRANE,
            Self::Kubeconform => &KUBECONFORM,
            Self::Opa => &OPA,
            Self::Kubectl130 => &KUBECTL_1_30,
            Self::Kubectl132 => &KUBECTL_1_32,
            Self::Age => &AGE,
            Self::WsStream => &WSSTREAM,
            Self::ClientGo => &CLIENT_GO,
            Self::RunClient => &RUN_CLIENT,
            _ => kubernetes.module(),
        }
    }

    /// Checks whether the program is a part of Kubernetes, and belongs to the version of the cluster.
    fn is_of_kubernetes(self) -> bool {
        let kubernetes = Kubernetes::default();
        std::ptr::eq(self.module(kubernetes), kubernetes.module())
    }
}

/// The paths of programs that exist and match the pinned versions.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<Tool, PathBuf>,
    /// The version of the parts of Kubernetes; `None` if they are those of `KUBEBUILDER_ASSETS`.
    kubernetes: Option<Kubernetes>,
}

impl Tools {
    /// Finds `wanted`, and compiles missing programs. The first time this takes minutes and is
    /// reported on standard error; it blocks, and several processes may call it at once.
    ///
    /// The parts of Kubernetes have the version of [`Kubernetes::from_environment`]. Unless that is
    /// named, `KUBEBUILDER_ASSETS` is used for them if it has all of the wanted ones (a cluster of
    /// mixed versions proves nothing). It is used for each of the other programs if it has that
    /// program.
    ///
    /// # Errors
    ///
    /// Fails when the environment names an unknown version, Go is not installed, a module cannot be
    /// fetched, or the cache cannot be written.
    pub fn obtain(wanted: &[Tool]) -> Result<Self> {
        let kubernetes = Kubernetes::from_environment()?;
        let mut paths = Self::assets(wanted, kubernetes);
        let is_compiled = !paths.keys().any(|tool| tool.is_of_kubernetes());
        let missing = wanted.iter().copied();
        let missing = missing.filter(|tool| !paths.contains_key(tool));
        let (parts, others): (BTreeSet<Tool>, BTreeSet<Tool>) =
            missing.partition(|tool| tool.is_of_kubernetes());
        // All clusters share the other programs.
        for (version, missing) in [(kubernetes.version(), parts), (KUBERNETES_VERSION, others)] {
            if !missing.is_empty() {
                let cache = Cache::open(version, kubernetes)?;
                cache.fill(&missing)?;
                paths.extend(missing.into_iter().map(|tool| (tool, cache.binary(tool))));
            }
        }
        let kubernetes = is_compiled.then_some(kubernetes);
        Ok(Self { paths, kubernetes })
    }

    /// Returns the programs of `KUBEBUILDER_ASSETS` to use.
    fn assets(wanted: &[Tool], kubernetes: Kubernetes) -> BTreeMap<Tool, PathBuf> {
        let mut paths = BTreeMap::new();
        let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
            return paths;
        };
        for module in MODULES {
            let group = pinned_by(module, kubernetes, wanted.iter().copied());
            if std::ptr::eq(module, kubernetes.module()) && kubernetes::named().is_some() {
                continue;
            }
            let lacking = group
                .iter()
                .find(|tool| !assets.join(tool.name()).is_file());
            if let Some(tool) = lacking {
                let name = tool.name();
                compile::say(&format!(
                    "KUBEBUILDER_ASSETS has no {name}: not used for it"
                ));
            } else {
                paths.extend(group.iter().map(|tool| (*tool, assets.join(tool.name()))));
            }
        }
        paths
    }

    /// Returns the minor version of the API server, such as 30 for 1.30.14.
    ///
    /// # Errors
    ///
    /// Fails when an API server of `KUBEBUILDER_ASSETS` does not report its version.
    pub(crate) fn minor(&self) -> Result<u32> {
        if let Some(kubernetes) = self.kubernetes {
            return kubernetes::minor(&format!("v{}", kubernetes.version()));
        }
        let program = self.path(Tool::ApiServer)?;
        let failed = || format!("failed to run {} --version", program.display());
        let output = std::process::Command::new(program)
            .arg("--version")
            .output()
            .with_context(failed)?;
        kubernetes::minor(&String::from_utf8_lossy(&output.stdout)).with_context(failed)
    }

    /// Returns the path of the program.
    ///
    /// # Errors
    ///
    /// Fails when the program was not among the wanted ones.
    pub fn path(&self, tool: Tool) -> Result<&Path> {
        self.paths
            .get(&tool)
            .map(PathBuf::as_path)
            .with_context(|| format!("failed to find {}: it was not asked for", tool.name()))
    }
}

fn pinned_by(
    module: &Module,
    kubernetes: Kubernetes,
    tools: impl Iterator<Item = Tool>,
) -> Vec<Tool> {
    tools
        .filter(|tool| std::ptr::eq(tool.module(kubernetes), module))
        .collect()
}

/// The cache in `~/.cache/oz/k8s-<version>/`: `bin/` with a stamp next to each program that
/// contains the inputs of its compilation, or its address and digest, and a lock for the process that fills it.
struct Cache {
    directory: PathBuf,
    /// The version of the parts of Kubernetes.
    kubernetes: Kubernetes,
    downloads: Downloads,
}

impl Cache {
    fn open(version: &str, kubernetes: Kubernetes) -> Result<Self> {
        let directory = cache_directory()?.join(format!("k8s-{version}"));
        std::fs::create_dir_all(directory.join("bin"))
            .with_context(|| format!("failed to make {}", directory.display()))?;
        let downloads = Downloads::from_environment();
        Ok(Self {
            directory,
            kubernetes,
            downloads,
        })
    }

    fn binary(&self, tool: Tool) -> PathBuf {
        self.directory.join("bin").join(tool.name())
    }

    fn stamp(&self, tool: Tool) -> PathBuf {
        self.directory
            .join("bin")
            .join(format!("{}.stamp", tool.name()))
    }

    fn has(&self, tool: Tool) -> bool {
        let stamped = std::fs::read_to_string(self.stamp(tool));
        let module = tool.module(self.kubernetes);
        let is_current = |stamp| {
            stamp == module.stamp(tool) || self.downloads.stamp(module, tool) == Some(stamp)
        };
        self.binary(tool).is_file() && stamped.is_ok_and(is_current)
    }

    fn fill(&self, wanted: &BTreeSet<Tool>) -> Result<()> {
        let lacks = |tool: &Tool| !self.has(*tool);
        if !wanted.iter().any(lacks) {
            return Ok(());
        }
        let _lock = self.lock()?;
        for module in MODULES {
            // Checked again under the lock: another process may have compiled it in the meantime.
            let missing = wanted.iter().copied().filter(lacks);
            let missing = pinned_by(module, self.kubernetes, missing);
            if missing.is_empty() {
                continue;
            }
            let missing = self.download(module, missing)?;
            if !missing.is_empty() {
                self.compile(module, &missing)?;
            }
        }
        Ok(())
    }

    /// Waits until no other process compiles, and removes the directories of interrupted
    /// compilations.
    fn lock(&self) -> Result<File> {
        let path = self.directory.join("lock");
        let failed = || format!("failed to lock {}", path.display());
        let lock = File::create(&path).with_context(failed)?;
        if lock.try_lock().is_err() {
            compile::say("waiting for another process, which is compiling the cluster");
            lock.lock().with_context(failed)?;
        }
        for entry in std::fs::read_dir(&self.directory)
            .with_context(failed)?
            .flatten()
        {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(compile::SCRATCH)
            {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Ok(lock)
    }

    fn compile(&self, module: &Module, missing: &[Tool]) -> Result<()> {
        let scratch = module.compile(missing, &self.directory)?;
        for tool in missing {
            let program = compile::output(scratch.path(), *tool);
            self.keep(*tool, &program, &module.stamp(*tool))?;
        }
        Ok(())
    }

    /// Downloads programs, and returns those that have to be compiled.
    fn download(&self, module: &Module, missing: Vec<Tool>) -> Result<Vec<Tool>> {
        let (scratch, fetched) = self.downloads.fetch(module, &missing, &self.directory)?;
        for (tool, stamp) in &fetched {
            self.keep(*tool, &download::output(scratch.path(), *tool), stamp)?;
        }
        let is_fetched = |tool: &Tool| fetched.iter().any(|(one, _)| one == tool);
        let mut left = missing;
        left.retain(|tool| !is_fetched(tool));
        Ok(left)
    }

    /// Moves a program into the cache, with its stamp.
    fn keep(&self, tool: Tool, program: &Path, content: &str) -> Result<()> {
        let stamp = self.stamp(tool);
        let failed = || format!("failed to keep {} in the cache", tool.name());
        // The stamp is removed first and written last, so that it never belongs to another
        // binary.
        let _ = std::fs::remove_file(&stamp);
        std::fs::rename(program, self.binary(tool)).with_context(failed)?;
        write_private(&stamp, content.as_bytes()).with_context(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::KUBERNETES;

    #[test]
    fn a_stamp_changes_with_the_pinned_versions_and_the_source() {
        let bumped = Module {
            go_mod: "module bumped",
            ..KUBERNETES
        };
        assert_ne!(KUBERNETES.stamp(Tool::Etcd), bumped.stamp(Tool::Etcd));
        let written_anew = Module {
            source: Some("package main"),
            ..WSSTREAM
        };
        let tool = Tool::WsStream;
        assert_ne!(WSSTREAM.stamp(tool), written_anew.stamp(tool));
    }
}
