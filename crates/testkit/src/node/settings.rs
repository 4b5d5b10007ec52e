//! The configuration of the processes of a real node: the settings of containerd, of its network
//! and of the kubelet.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

use super::{NAME_SERVER, PAUSE_IMAGE, REGISTRIES};

/// Returns containerd's settings. All data that it keeps is in `directory`.
pub(super) fn containerd(directory: &Path, plugins: &Path) -> String {
    let directory = directory.display();
    let plugins = plugins.display();
    format!(
        r#"version = 2
root = "{directory}/root"
state = "{directory}/state"

[grpc]
address = "{directory}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Root of a container of its own may not lower it.
restrict_oom_score_adj = true
# A profile would be loaded into the machine's kernel.
disable_apparmor = true

# Read at each pull.
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{directory}/{REGISTRIES}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{directory}/cni"
"#
    )
}

/// Returns the network of the node's pods, a bridge inside the node, with the range of their addresses and, if there is
/// one, that of their IPv6 addresses.
pub(super) fn network(directory: &Path, range: &str, range_v6: Option<&str>) -> Value {
    let ranges = std::iter::once(range).chain(range_v6);
    let ranges: Vec<Value> = ranges.map(|range| json!([{ "subnet": range }])).collect();
    let routes = std::iter::once("0.0.0.0/0").chain(range_v6.map(|_| "::/0"));
    let routes: Vec<Value> = routes.map(|route| json!({ "dst": route })).collect();
    json!({
        "cniVersion": "0.4.0",
        "name": "oz",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": directory.join("addresses"),
                "ranges": ranges,
                "routes": routes,
            },
        }],
    })
}

/// Returns the settings of a kubelet with control groups below `control_group`.
pub(super) fn kubelet(directory: &Path, pki: &Path, control_group: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", directory.join("containerd.sock").display()),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.join("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki.join("kubelet.crt"),
        "tlsPrivateKeyFile": pki.join("kubelet.key"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": control_group,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "maxPods": 250,
        // The machine's file may be in a directory over which the node has its own mounts, and names a
        // server that pods do not reach.
        "resolvConf": directory.join("resolv.conf"),
        "clusterDNS": [NAME_SERVER],
        "clusterDomain": "cluster.local",
        "podLogsDir": directory.join("pod-logs"),
        "volumePluginDir": directory.join("volume-plugins"),
        // No registry has the images again, and a full disk is no reason to end a test's pod.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "imagefs.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 0,
    })
}

/// Returns the kubelet's flags for options that its settings do not cover.
pub(super) fn kubelet_flags(directory: &Path, state: &Path, address: Ipv4Addr) -> [String; 5] {
    [
        format!("--config={}", directory.join("kubelet.json").display()),
        format!(
            "--kubeconfig={}",
            state.join("kubelet.kubeconfig").display()
        ),
        format!("--root-dir={}", directory.join("kubelet").display()),
        format!("--hostname-override={}", super::NAME),
        format!("--node-ip={address}"),
    ]
}

/// Returns the settings of kube-proxy: pods reach Services through it.
pub(super) fn proxy(state: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": { "kubeconfig": state.join("kube-proxy.kubeconfig") },
        "hostnameOverride": super::NAME,
        "bindAddress": "0.0.0.0",
        // These belong to the machine; a network namespace may not set them.
        "conntrack": { "maxPerCore": 0, "min": 0 },
        "iptables": { "minSyncPeriod": "0s" },
    })
}
