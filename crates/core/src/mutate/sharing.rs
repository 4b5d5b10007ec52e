//! Settings that a pod cannot share with the workload's own pods: ports of the node, and the volumes that a
//! StatefulSet creates for each of its pods. Notes report removed settings and risks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::confine::json::{items, items_mut, prune, remove};

/// The probes and lifecycle hooks of a container, as JSON Pointers.
const HANDLERS: [&str; 5] = [
    "/livenessProbe",
    "/readinessProbe",
    "/startupProbe",
    "/lifecycle/postStart",
    "/lifecycle/preStop",
];

/// Removes the settings that cannot be shared, and returns notes about them.
///
/// Host ports are removed; on the network of the node every port is one, so none is declared there. A volume
/// claim template of a StatefulSet becomes an empty directory: the data belongs to the pods of the set, one
/// claim for each. A raw device of such a claim has no counterpart.
pub(super) fn drop_unshareable(spec: &mut Value, claims: &[String]) -> Vec<String> {
    let mut notes = host_ports(spec);
    notes.extend(devices(spec, claims));
    let known: BTreeSet<&str> = names(&spec["volumes"]);
    let missing: Vec<&String> = claims
        .iter()
        .filter(|claim| !known.contains(claim.as_str()) && is_mounted(spec, claim))
        .collect();
    let mut volumes: Vec<Value> = items(&spec["volumes"]).cloned().collect();
    for claim in missing {
        volumes.push(json!({"name": claim, "emptyDir": {}}));
        notes.push(format!(
            "volume {claim} is an empty directory: the claims of a StatefulSet belong to its own pods"
        ));
    }
    if !volumes.is_empty() {
        spec["volumes"] = json!(volumes);
    }
    notes
}

fn devices(spec: &mut Value, claims: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let devices = container.get_mut("volumeDevices");
            let Some(devices) = devices.and_then(Value::as_array_mut) else {
                continue;
            };
            devices.retain(|device| {
                let theirs = claims.iter().find(|claim| device["name"] == claim.as_str());
                if let Some(claim) = theirs {
                    notes.push(format!(
                        "device {claim} is dropped: the claims of a StatefulSet belong to its own pods"
                    ));
                }
                theirs.is_none()
            });
            prune(container, "volumeDevices");
        }
    }
    notes
}

fn host_ports(spec: &mut Value) -> Vec<String> {
    let mut notes = Vec::new();
    let host_network = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for port in items_mut(container, "ports") {
                let host_port = port["hostPort"].as_i64().filter(|port| *port != 0);
                remove(port, "hostPort");
                remove(port, "hostIP");
                if let Some(host_port) = host_port {
                    notes.push(format!(
                        "hostPort {host_port} of container {name} is dropped: the workload has it"
                    ));
                }
            }
            if host_network && container.get("ports").is_some() {
                resolve_port_names(container);
                remove(container, "ports");
                notes.push(format!(
                    "the ports of container {name} are not declared: on the node's own network \
                     the workload has them"
                ));
            }
        }
    }
    notes
}

/// Replaces the names of ports in the probes and lifecycle hooks of a container by the numbers of its own ports, as the
/// kubelet does. A name that no port has stays, as it is in the workload.
/// See <https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#use-a-named-port>.
fn resolve_port_names(container: &mut Value) {
    let numbers: BTreeMap<String, Value> = items(&container["ports"])
        .filter_map(|port| {
            let name = port["name"].as_str()?;
            Some((name.to_owned(), port["containerPort"].clone()))
        })
        .collect();
    for handler in HANDLERS {
        // A probe by gRPC has a number only.
        for action in ["httpGet", "tcpSocket"] {
            let Some(port) = container.pointer_mut(&format!("{handler}/{action}/port")) else {
                continue;
            };
            if let Some(number) = port.as_str().and_then(|name| numbers.get(name)) {
                *port = number.clone();
            }
        }
    }
}

/// Returns warnings about settings that are risky but unchanged: claims that the workload's pods mount as
/// well, by their access modes as far as they are known.
pub(super) fn warn(
    spec: &Value,
    access_modes: Option<&BTreeMap<String, Vec<String>>>,
) -> Vec<String> {
    items(&spec["volumes"])
        .filter_map(|volume| {
            let claim = &volume["persistentVolumeClaim"];
            let name = claim["claimName"].as_str()?;
            let modes = access_modes.and_then(|known| known.get(name));
            let reads = claim["readOnly"] == true;
            let so = match modes {
                Some(modes) => consequence(modes),
                None => Some("if the claim is ReadWriteOnce, the pod starts only on the same node"),
            };
            if reads && so.is_none() {
                return None;
            }
            let volume = volume["name"].as_str().unwrap_or_default();
            let does = if reads { "reads" } else { "writes to" };
            let mut note =
                format!("volume {volume} {does} the claim {name} that the workload uses");
            if let Some(so) = so {
                note.push_str(&format!("; {so}"));
            }
            Some(note)
        })
        .collect()
}

/// Returns the consequence of the access modes of a claim for a second pod; `None` if there is none.
fn consequence(modes: &[String]) -> Option<&'static str> {
    let has = |mode: &str| modes.iter().any(|known| known == mode);
    if has("ReadWriteMany") || has("ReadOnlyMany") {
        None
    } else if has("ReadWriteOncePod") {
        Some(
            "the claim is ReadWriteOncePod, so the pod does not start while one of the workload \
             has it",
        )
    } else {
        Some("the claim is ReadWriteOnce, so the pod starts only on the same node")
    }
}

fn is_mounted(spec: &Value, volume: &str) -> bool {
    ["initContainers", "containers"]
        .iter()
        .flat_map(|list| items(&spec[*list]))
        .flat_map(|container| items(&container["volumeMounts"]))
        .any(|mount| mount["name"] == volume)
}

fn names(list: &Value) -> BTreeSet<&str> {
    items(list)
        .filter_map(|item| item["name"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::render;
    use super::super::tests::{access_pod, model, plain};

    /// Returns the spec of an access pod that keeps all probes, in the network of the node or in its own.
    fn rendered(host_network: bool, containers: Value, init: Value) -> Value {
        let mut template = plain();
        template["spec"]["hostNetwork"] = json!(host_network);
        template["spec"]["containers"] = containers;
        template["spec"]["initContainers"] = init;
        let mutation = json!({
            "keepLivenessProbe": true, "keepReadinessProbe": true, "keepStartupProbe": true,
        });
        json!(
            render(&access_pod(mutation), Some(&model(template)))
                .unwrap()
                .spec
        )
    }

    /// Returns a container with this action in every probe and lifecycle hook.
    fn container(name: &str, ports: &Value, action: &Value) -> Value {
        json!({
            "name": name, "image": "app:1", "ports": ports,
            "livenessProbe": action, "readinessProbe": action, "startupProbe": action,
            "lifecycle": {"postStart": action, "preStop": action},
        })
    }

    #[test]
    fn named_ports_of_probes_and_hooks_on_host_network_become_numbers() {
        let ports = json!([
            {"name": "http", "containerPort": 8080},
            {"name": "admin", "containerPort": 9090, "hostPort": 9090},
            {"containerPort": 7070},
        ]);
        for (action, expected) in [
            (
                json!({"httpGet": {"path": "/", "port": "http"}}),
                json!({"httpGet": {"path": "/", "port": 8080}}),
            ),
            (
                json!({"tcpSocket": {"port": "admin"}}),
                json!({"tcpSocket": {"port": 9090}}),
            ),
            (
                json!({"httpGet": {"port": 8080}}),
                json!({"httpGet": {"port": 8080}}),
            ),
            (
                json!({"tcpSocket": {"port": "8080"}}),
                json!({"tcpSocket": {"port": "8080"}}),
            ),
            (
                json!({"tcpSocket": {"port": "unknown"}}),
                json!({"tcpSocket": {"port": "unknown"}}),
            ),
            (
                json!({"exec": {"command": ["true"]}}),
                json!({"exec": {"command": ["true"]}}),
            ),
        ] {
            let app = container("app", &ports, &action);
            let mut sidecar = container("mesh", &ports, &action);
            sidecar["restartPolicy"] = json!("Always");
            let spec = rendered(true, json!([app]), json!([sidecar]));
            for list in ["containers", "initContainers"] {
                let one = &spec[list][0];
                assert_eq!(one.get("ports"), None, "{list} {action}");
                for path in super::HANDLERS {
                    assert_eq!(one.pointer(path), Some(&expected), "{list} {path} {action}");
                }
            }
        }
    }

    #[test]
    fn named_ports_are_those_of_the_same_container() {
        let http = json!({"httpGet": {"port": "http"}});
        let one = container("one", &json!([{"name": "http", "containerPort": 1}]), &http);
        let two = container("two", &json!([{"name": "http", "containerPort": 2}]), &http);
        let spec = rendered(true, json!([one, two]), json!([]));
        let port = |index: usize| &spec["containers"][index]["readinessProbe"]["httpGet"]["port"];
        assert_eq!((port(0), port(1)), (&json!(1), &json!(2)));
    }

    #[test]
    fn named_ports_outside_of_host_network_are_kept() {
        let ports = json!([{"name": "http", "containerPort": 8080}]);
        let app = container("app", &ports, &json!({"httpGet": {"port": "http"}}));
        let spec = rendered(false, json!([app]), json!([]));
        assert_eq!(spec["containers"][0], app);
    }
}
