//! What clients are told there is: of the gate's own group for whoever looks at the API server, and behind a
//! request's address as much of the core group as the gate passes on. Both in the form that every client reads;
//! who would rather have all groups in one answer takes this when it is what comes.

use oz_core::gate::{GROUP, RESOURCE, VERSION};
use serde_json::{Value, json};

/// `/apis` behind the API server, and what the aggregator looks at.
pub(crate) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

/// `/apis/GROUP`.
pub(crate) fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

/// `/apis/GROUP/VERSION`.
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

/// `/api` behind a request's address.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis` behind a request's address: no other group.
pub(crate) fn no_groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

/// `/api/v1` behind a request's address.
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
