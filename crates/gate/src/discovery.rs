//! The discovery documents: of the gate's own API group for clients of the API server, and, behind the address of a
//! request, the part of the core group that the gate passes on. Both have the form that every client reads; a client
//! that prefers all groups in one document accepts this form when the gate sends it.
//! See <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.

use oz_core::gate::{GROUP, RESOURCE, VERSION};
use serde_json::{Value, json};

/// Returns `/apis` behind the API server, which the aggregator reads too.
pub(crate) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

/// Returns `/apis/GROUP`.
pub(crate) fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

/// Returns `/apis/GROUP/VERSION`.
pub(crate) fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": format!("{RESOURCE}/proxy"), "singularName": "", "namespaced": true,
            "kind": "Gate", "verbs": ["create", "get", "patch"],
        }],
    })
}

/// Returns `/api` behind the address of a request.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// Returns `/apis` behind the address of a request: no other group.
pub(crate) fn no_groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

/// Returns `/api/v1` behind the address of a request.
pub(crate) fn core_resources() -> Value {
    let sub = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": format!("pods/{name}"), "singularName": "", "namespaced": true,
            "kind": kind, "verbs": verbs,
        })
    };
    json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [
            {
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "verbs": ["get"], "shortNames": ["po"], "categories": ["all"],
            },
            sub("attach", "PodAttachOptions", &["create", "get"]),
            sub("ephemeralcontainers", "Pod", &["patch"]),
            sub("exec", "PodExecOptions", &["create", "get"]),
            sub("log", "Pod", &["get"]),
            sub("portforward", "PodPortForwardOptions", &["create", "get"]),
        ],
    })
}
