//! Settings that a pod cannot share with the workload's own pods: ports of the node, and the volumes that a
//! StatefulSet creates for each of its pods. Notes report removed settings and risks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{items_mut, remove};

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
    let own = spec["volumes"].as_array().into_iter().flatten();
    let mut volumes: Vec<Value> = own.cloned().collect();
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
            if devices.is_empty() {
                remove(container, "volumeDevices");
            }
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

/// Returns warnings about settings that are risky but unchanged: claims that the workload's pods mount as
/// well, by their access modes as far as they are known.
pub(super) fn warn(
    spec: &Value,
    access_modes: Option<&BTreeMap<String, Vec<String>>>,
) -> Vec<String> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes
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
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .flat_map(|container| container["volumeMounts"].as_array().into_iter().flatten())
        .any(|mount| mount["name"] == volume)
}

fn names(list: &Value) -> BTreeSet<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item["name"].as_str()).collect()
}
