//! The names of the programs of a cluster, and of those that install oz on it, with their Go packages.

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
    /// crane, which pushes images, and serves a registry to tests.
    Crane,
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
            Self::Crane => "crane",
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
            Self::Crane => "github.com/google/go-containerregistry/cmd/crane".into(),
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
}
