//! The Go modules of `hack/tools`, which pin the compiled programs.

use crate::compile::Module;

/// The Kubernetes version of a cluster, unless `OZ_KUBERNETES` names another one, see
/// [`Kubernetes`](crate::Kubernetes). `hack/tools/kubernetes/go.mod` pins the same one; a test compares them.
pub const KUBERNETES_VERSION: &str = "1.35.4";
const KWOK_VERSION: &str = "0.8.0";
const HELM_VERSION: &str = "3.22.0";
const CRANE_VERSION: &str = "0.22.1";
const KUBECONFORM_VERSION: &str = "0.8.0";
const OPA_VERSION: &str = "1.22.4";
const AGE_VERSION: &str = "1.3.2";
/// The version of the Kubernetes libraries: that of [`KUBERNETES_VERSION`].
const STAGING_VERSION: &str = "0.35.4";

/// A module with commands of a Kubernetes version, which is in the folder `$folder`.
macro_rules! kubernetes {
    ($name:literal, $folder:literal, $minor:literal, $patch:literal, $packages:literal, $takes:literal) => {
        Module {
            name: $name,
            version: concat!("1.", $minor, ".", $patch),
            packages: $packages,
            takes: $takes,
            go_mod: include_str!(concat!("../../../hack/tools/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../../../hack/tools/", $folder, "/go.sum")),
            source: None,
            // Without these variables a server reports the version v0.0.0.
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

pub(crate) static KUBERNETES: Module = kubernetes!(
    "Kubernetes",
    "kubernetes",
    "35",
    "4",
    2680,
    "about 6 minutes"
);
pub(crate) static KUBERNETES_1_30: Module = kubernetes!(
    "Kubernetes",
    "kubernetes-1.30",
    "30",
    "14",
    2630,
    "about 6 minutes"
);
pub(crate) static KUBERNETES_1_37: Module = kubernetes!(
    "Kubernetes",
    "kubernetes-1.37",
    "37",
    "2",
    2750,
    "about 7 minutes"
);

// The versions of kubectl with the oldest and the newest protocol of its streams, which users have in addition to the
// cluster's version.
pub(crate) static KUBECTL_1_30: Module =
    kubernetes!("kubectl", "kubectl-1.30", "30", "14", 700, "about a minute");
pub(crate) static KUBECTL_1_32: Module =
    kubernetes!("kubectl", "kubectl-1.32", "32", "13", 700, "about a minute");

/// A published program, compiled without changes.
macro_rules! published {
    ($name:literal, $folder:literal, $version:expr, $packages:literal, $takes:literal) => {
        Module {
            name: $name,
            version: $version,
            packages: $packages,
            takes: $takes,
            go_mod: include_str!(concat!("../../../hack/tools/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../../../hack/tools/", $folder, "/go.sum")),
            source: None,
            variables: &[],
        }
    };
}

// The packages of kwok that Kubernetes, which is compiled first, does not share.
pub(crate) static KWOK: Module = published!("kwok", "kwok", KWOK_VERSION, 690, "about a minute");

pub(crate) static HELM: Module = Module {
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

pub(crate) static CRANE: Module = published!("crane", "crane", CRANE_VERSION, 270, "half a minute");

pub(crate) static KUBECONFORM: Module = published!(
    "kubeconform",
    "kubeconform",
    KUBECONFORM_VERSION,
    200,
    "half a minute"
);

pub(crate) static OPA: Module = published!("OPA", "opa", OPA_VERSION, 900, "about 2 minutes");

pub(crate) static AGE: Module = published!("age", "age", AGE_VERSION, 150, "half a minute");

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

pub(crate) static WSSTREAM: Module = program!("wsstream", 250, "half a minute");
pub(crate) static CLIENT_GO: Module = program!("client-go", 600, "about a minute");
pub(crate) static RUN_CLIENT: Module = program!("run-client", 130, "half a minute");

/// All modules, in the order in which they are compiled.
pub(crate) const MODULES: [&Module; 14] = [
    &KUBERNETES,
    &KUBERNETES_1_30,
    &KUBERNETES_1_37,
    &KWOK,
    &HELM,
    &CRANE,
    &KUBECONFORM,
    &OPA,
    &KUBECTL_1_30,
    &KUBECTL_1_32,
    &AGE,
    &WSSTREAM,
    &CLIENT_GO,
    &RUN_CLIENT,
];

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
        let path = "github.com/google/go-containerregistry";
        assert!(pinned(&CRANE, path, CRANE_VERSION));
        let path = "github.com/yannh/kubeconform";
        assert!(pinned(&KUBECONFORM, path, KUBECONFORM_VERSION));
        let path = "github.com/open-policy-agent/opa";
        assert!(pinned(&OPA, path, OPA_VERSION));
        assert_eq!(KUBERNETES.version, KUBERNETES_VERSION);
        for module in [
            &KUBERNETES,
            &KUBERNETES_1_30,
            &KUBERNETES_1_37,
            &KUBECTL_1_30,
            &KUBECTL_1_32,
        ] {
            let version = module.version;
            assert!(pinned(module, "k8s.io/kubernetes", version), "{version}");
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
}
