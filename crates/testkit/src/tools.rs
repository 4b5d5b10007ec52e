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

/// The Kubernetes version that the embedded cluster is compiled from. `hack/tools/kubernetes/go.mod`
/// pins the same one; a test compares them.
pub const KUBERNETES_VERSION: &str = "1.35.4";
const KWOK_VERSION: &str = "0.8.0";
const HELM_VERSION: &str = "3.22.0";
const KUBECONFORM_VERSION: &str = "0.8.0";
const OPA_VERSION: &str = "1.22.4";
const AGE_VERSION: &str = "1.3.2";
/// The version of the Kubernetes libraries: that of the cluster.
const STAGING_VERSION: &str = "0.35.4";

/// A program that is compiled from the Go module proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tool {
    /// The database of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kubectl.
    Kubectl,
    /// kubectl 1.30, which forwards ports over SPDY, and all other streams if it is configured so.
    Kubectl130,
    /// kubectl 1.32.
    Kubectl132,
    /// kwok, which stands in for nodes.
    Kwok,
    /// The kubelet; only a real node needs it.
    Kubelet,
    /// kube-proxy; only a real node needs it.
    KubeProxy,
    /// helm, which installs the chart.
    Helm,
    /// kubeconform, which compares manifests with schemas.
    Kubeconform,
    /// OPA, the reference for policies in process.
    Opa,
    /// age, the reference for encrypted data.
    Age,
    /// The reader of WebSockets of API server and kubelet, with which the gate is compared.
    WsStream,
    /// A program with client-go, with which the gate is tested.
    ClientGo,
    /// A client of HTTPS in Go, with which the proxies of harness runs are tested and measured.
    RunClient,
}

impl Tool {
    /// The programs of the embedded cluster: everything but a real node.
    pub const CLUSTER: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kwok,
    ];

    /// The programs of a cluster with a real node: a kubelet and kube-proxy instead of kwok.
    pub const CLUSTER_WITH_KUBELET: [Self; 7] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kubelet,
        Self::KubeProxy,
    ];

    /// The programs that test the chart.
    pub const CHART: [Self; 2] = [Self::Helm, Self::Kubeconform];

    /// Returns the program's file name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubectl130 => "kubectl-1.30",
            Self::Kubectl132 => "kubectl-1.32",
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Helm => "helm",
            Self::Kubeconform => "kubeconform",
            Self::Opa => "opa",
            Self::Age => "age",
            Self::WsStream => "wsstream",
            Self::ClientGo => "client-go",
            Self::RunClient => "run-client",
        }
    }

    /// Returns the Go package of the program.
    pub(crate) fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".into(),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".into(),
            Self::Helm => "helm.sh/helm/v3/cmd/helm".into(),
            Self::Kubeconform => "github.com/yannh/kubeconform/cmd/kubeconform".into(),
            Self::Opa => "github.com/open-policy-agent/opa".into(),
            Self::Kubectl130 | Self::Kubectl132 => "k8s.io/kubernetes/cmd/kubectl".into(),
            Self::Age => "filippo.io/age/cmd/age".into(),
            Self::WsStream | Self::ClientGo | Self::RunClient => {
                format!("oz/hack/tools/{}", self.name())
            }
            _ => format!("k8s.io/kubernetes/cmd/{}", self.name()),
        }
    }

    /// Returns the module of `hack/tools` that pins the program: the requirements of the modules
    /// conflict.
    const fn module(self) -> &'static Module {
        match self {
            Self::Kwok => &KWOK,
            Self::Helm => &HELM,
            Self::Kubeconform => &KUBECONFORM,
            Self::Opa => &OPA,
            Self::Kubectl130 => &KUBECTL_1_30,
            Self::Kubectl132 => &KUBECTL_1_32,
            Self::Age => &AGE,
            Self::WsStream => &WSSTREAM,
            Self::ClientGo => &CLIENT_GO,
            Self::RunClient => &RUN_CLIENT,
            _ => &KUBERNETES,
        }
    }
}

static KUBERNETES: Module = Module {
    name: "Kubernetes",
    version: KUBERNETES_VERSION,
    packages: 2680,
    takes: "about 6 minutes",
    go_mod: include_str!("../../../hack/tools/kubernetes/go.mod"),
    go_sum: include_str!("../../../hack/tools/kubernetes/go.sum"),
    source: None,
    // Without these variables the server reports the version v0.0.0.
    variables: &[
        ("k8s.io/component-base/version.gitVersion", "v1.35.4"),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "35"),
    ],
};

/// A version of kubectl that users have in addition to the cluster's version.
macro_rules! kubectl {
    ($minor:literal, $patch:literal) => {
        Module {
            name: "kubectl",
            version: concat!("1.", $minor, ".", $patch),
            packages: 700,
            takes: "about a minute",
            go_mod: include_str!(concat!("../../../hack/tools/kubectl-1.", $minor, "/go.mod")),
            go_sum: include_str!(concat!("../../../hack/tools/kubectl-1.", $minor, "/go.sum")),
            source: None,
            variables: &[
                (
                    "k8s.io/component-base/version.gitVersion",
                    concat!("v1.", $minor, ".", $patch),
                ),
                ("k8s.io/component-base/version.gitMajor", "1"),
                ("k8s.io/component-base/version.gitMinor", $minor),
            ],
        }
    };
}

// The versions with the oldest and the newest protocol of kubectl's streams.
static KUBECTL_1_30: Module = kubectl!("30", "14");
static KUBECTL_1_32: Module = kubectl!("32", "13");

static KWOK: Module = Module {
    name: "kwok",
    version: KWOK_VERSION,
    // The packages that Kubernetes, which is compiled first, does not share.
    packages: 690,
    takes: "about a minute",
    go_mod: include_str!("../../../hack/tools/kwok/go.mod"),
    go_sum: include_str!("../../../hack/tools/kwok/go.sum"),
    source: None,
    variables: &[],
};

static HELM: Module = Module {
    name: "Helm",
    version: HELM_VERSION,
    packages: 1100,
    takes: "about 3 minutes",
    go_mod: include_str!("../../../hack/tools/helm/go.mod"),
    go_sum: include_str!("../../../hack/tools/helm/go.sum"),
    source: None,
    // Without these variables a chart that is rendered without a cluster is rendered for Kubernetes
    // 1.20.
    variables: &[
        ("helm.sh/helm/v3/internal/version.version", "v3.22.0"),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "35"),
    ],
};

static KUBECONFORM: Module = Module {
    name: "kubeconform",
    version: KUBECONFORM_VERSION,
    packages: 200,
    takes: "half a minute",
    go_mod: include_str!("../../../hack/tools/kubeconform/go.mod"),
    go_sum: include_str!("../../../hack/tools/kubeconform/go.sum"),
    source: None,
    variables: &[],
};

static OPA: Module = Module {
    name: "OPA",
    version: OPA_VERSION,
    packages: 900,
    takes: "about 2 minutes",
    go_mod: include_str!("../../../hack/tools/opa/go.mod"),
    go_sum: include_str!("../../../hack/tools/opa/go.sum"),
    source: None,
    variables: &[],
};

static AGE: Module = Module {
    name: "age",
    version: AGE_VERSION,
    packages: 150,
    takes: "half a minute",
    go_mod: include_str!("../../../hack/tools/age/go.mod"),
    go_sum: include_str!("../../../hack/tools/age/go.sum"),
    source: None,
    variables: &[],
};

/// A program of this project; those but the last use libraries of Kubernetes.
macro_rules! program {
    ($name:literal, $packages:literal, $takes:literal) => {
        Module {
            name: $name,
            version: STAGING_VERSION,
            packages: $packages,
            takes: $takes,
            go_mod: include_str!(concat!("../../../hack/tools/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../../../hack/tools/", $name, "/go.sum")),
            source: Some(include_str!(concat!(
                "../../../hack/tools/",
                $name,
                "/main.go"
            ))),
            variables: &[],
        }
    };
}

static WSSTREAM: Module = program!("wsstream", 250, "half a minute");
static CLIENT_GO: Module = program!("client-go", 600, "about a minute");
static RUN_CLIENT: Module = program!("run-client", 130, "half a minute");

/// All modules, in the order in which they are compiled.
const MODULES: [&Module; 11] = [
    &KUBERNETES,
    &KWOK,
    &HELM,
    &KUBECONFORM,
    &OPA,
    &KUBECTL_1_30,
    &KUBECTL_1_32,
    &AGE,
    &WSSTREAM,
    &CLIENT_GO,
    &RUN_CLIENT,
];

/// The paths of programs that exist and match the pinned versions.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<Tool, PathBuf>,
}

impl Tools {
    /// Finds `wanted`, and compiles missing programs. The first time this takes minutes and is
    /// reported on standard error; it blocks, and several processes may call it at once.
    ///
    /// `KUBEBUILDER_ASSETS` is used for the parts of Kubernetes if it has all of the wanted ones (a
    /// cluster of mixed versions proves nothing), and for each of the other programs if it has that
    /// program.
    ///
    /// # Errors
    ///
    /// Fails when Go is not installed, a module cannot be fetched, or the cache cannot be written.
    pub fn obtain(wanted: &[Tool]) -> Result<Self> {
        let mut paths = BTreeMap::new();
        let mut missing: BTreeSet<Tool> = wanted.iter().copied().collect();
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
            for module in MODULES {
                let group = pinned_by(module, wanted.iter().copied());
                let lacking = group
                    .iter()
                    .find(|tool| !assets.join(tool.name()).is_file());
                if let Some(tool) = lacking {
                    let name = tool.name();
                    compile::say(&format!(
                        "KUBEBUILDER_ASSETS has no {name}: not used for it"
                    ));
                } else {
                    missing.retain(|tool| !group.contains(tool));
                    paths.extend(group.iter().map(|tool| (*tool, assets.join(tool.name()))));
                }
            }
        }
        if !missing.is_empty() {
            let cache = Cache::open()?;
            cache.fill(&missing)?;
            paths.extend(missing.into_iter().map(|tool| (tool, cache.binary(tool))));
        }
        Ok(Self { paths })
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

fn pinned_by(module: &Module, tools: impl Iterator<Item = Tool>) -> Vec<Tool> {
    tools
        .filter(|tool| std::ptr::eq(tool.module(), module))
        .collect()
}

/// The cache in `~/.cache/oz/k8s-<version>/`: `bin/` with a stamp next to each program that
/// contains the inputs of its compilation, or its address and digest, and a lock for the process that fills it.
struct Cache {
    directory: PathBuf,
    downloads: Downloads,
}

impl Cache {
    fn open() -> Result<Self> {
        let directory = cache_directory()?.join(format!("k8s-{KUBERNETES_VERSION}"));
        std::fs::create_dir_all(directory.join("bin"))
            .with_context(|| format!("failed to make {}", directory.display()))?;
        let downloads = Downloads::from_environment();
        Ok(Self {
            directory,
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
        let module = tool.module();
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
            let missing = pinned_by(module, wanted.iter().copied().filter(lacks));
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

    #[test]
    fn the_version_named_here_is_the_one_go_mod_pins() {
        let pinned = |module: &Module, path: &str, version: &str| {
            let line = format!("\t{path} v{version}");
            module
                .go_mod
                .lines()
                .any(|pin| pin.trim_end_matches(" // indirect") == line)
        };
        assert!(pinned(&KWOK, "sigs.k8s.io/kwok", KWOK_VERSION));
        assert!(pinned(&HELM, "helm.sh/helm/v3", HELM_VERSION));
        let path = "github.com/yannh/kubeconform";
        assert!(pinned(&KUBECONFORM, path, KUBECONFORM_VERSION));
        let path = "github.com/open-policy-agent/opa";
        assert!(pinned(&OPA, path, OPA_VERSION));
        for module in [&KUBERNETES, &KUBECTL_1_30, &KUBECTL_1_32] {
            let version = module.version;
            assert!(pinned(module, "k8s.io/kubernetes", version));
            let variable = module.variables.first().unwrap().1;
            assert_eq!(variable, format!("v{version}"));
        }
        assert!(pinned(&AGE, "filippo.io/age", AGE_VERSION));
        let path = "k8s.io/apimachinery";
        for module in [&KUBERNETES, &WSSTREAM, &CLIENT_GO] {
            assert!(pinned(module, path, STAGING_VERSION), "{}", module.name);
        }
        // The same reader of WebSockets as in the API server.
        let read_by = |module: &Module| {
            let mut lines = module.go_mod.lines();
            lines.find(|line| line.contains("golang.org/x/net "))
        };
        assert_eq!(read_by(&WSSTREAM), read_by(&KUBERNETES));
    }

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
