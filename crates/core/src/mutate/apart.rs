//! Settings of the workload's own pods that do not apply to a dedicated pod: their anti-affinity to each
//! other, their readiness gates, and their labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;

use crate::confine::json::{items, prune, remove, texts};

const KEEPING_AWAY: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const LABELS: &str = "metadata.labels";

/// Removes the anti-affinity that excludes each node with a pod of the workload, since it would prevent a
/// dedicated pod from ever starting where the workload has a pod on every node; returns the notes about it.
pub(super) fn drop_anti_affinity(spec: &mut Value, labels: &Value) -> Vec<String> {
    let labels = texts(labels);
    let Some(affinity) = spec.get_mut("affinity") else {
        return Vec::new();
    };
    let Some(anti) = affinity.get_mut("podAntiAffinity") else {
        return Vec::new();
    };
    let terms = anti.get_mut(KEEPING_AWAY).and_then(Value::as_array_mut);
    let Some(terms) = terms else {
        return Vec::new();
    };
    let before = terms.len();
    terms.retain(|term| !selects(&term["labelSelector"], &labels));
    if terms.len() == before {
        return Vec::new();
    }
    prune(anti, KEEPING_AWAY);
    prune(affinity, "podAntiAffinity");
    prune(spec, "affinity");
    vec![
        "the anti-affinity to the workload's own pods is dropped: where they are on every node, it would \
         never start"
            .to_owned(),
    ]
}

/// Removes the readiness gates of the workload's pods: no component sets them for this pod.
pub(super) fn drop_readiness_gates(spec: &mut Value) -> Vec<String> {
    let names = items(&spec["readinessGates"]).filter_map(|gate| gate["conditionType"].as_str());
    let notes = names.map(|name| {
        format!(
            "readiness gate {name} is dropped: no component would set \
        it"
        )
    });
    let notes = notes.collect();
    remove(spec, "readinessGates");
    notes
}

/// Returns warnings about labels of the workload that the spec refers to and that the pod does not have.
pub(super) fn warn(spec: &Value, workload: &Value, own: &Value) -> Vec<String> {
    let (workload, own) = (texts(workload), texts(own));
    let is_gone = |path: &str| {
        if path == LABELS {
            return workload.keys().any(|key| !own.contains_key(key));
        }
        let key = path.strip_prefix(LABELS).and_then(|rest| {
            let rest = rest.strip_prefix("['")?;
            rest.strip_suffix("']")
        });
        key.is_some_and(|key| workload.contains_key(key) && !own.contains_key(key))
    };
    let path = |item: &Value| item["fieldRef"]["fieldPath"].as_str().map(str::to_owned);
    let mut notes = Vec::new();
    for volume in items(&spec["volumes"]) {
        let projected = items(&volume["projected"]["sources"]);
        let sources = projected.map(|source| &source["downwardAPI"]);
        let all = sources.chain([&volume["downwardAPI"]]);
        let files = all.flat_map(|source| items(&source["items"]));
        if files.filter_map(path).any(|path| is_gone(&path)) {
            let name = volume["name"].as_str().unwrap_or_default();
            notes.push(format!(
                "volume {name} refers to labels that the workload's pods have, and this pod has not"
            ));
        }
    }
    for container in ["initContainers", "containers"]
        .iter()
        .flat_map(|list| items(&spec[*list]))
    {
        let gone = items(&container["env"])
            .filter(|variable| path(&variable["valueFrom"]).is_some_and(|path| is_gone(&path)));
        notes.extend(gone.filter_map(|variable| {
            let name = variable["name"].as_str()?;
            Some(format!(
                "variable {name} refers to a label that the workload's pods have, and this pod has \
                    not"
            ))
        }));
    }
    notes
}

/// Checks whether a selector of an affinity selects pods with these labels; an absent one selects nothing.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    if selector.is_null() {
        return false;
    }
    let selector = serde_json::from_value::<LabelSelector>(selector.clone());
    let selector = selector
        .ok()
        .and_then(|parsed| Selector::try_from(parsed).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{access_pod, model, plain};
    use super::super::{Rendered, render};

    fn rendered(more: Value, mutation: Value) -> Rendered {
        let mut template = plain();
        for (key, value) in more.as_object().unwrap() {
            template["spec"][key] = value.clone();
        }
        render(&access_pod(mutation), Some(&model(template))).unwrap()
    }

    fn away_from(selector: &Value) -> Value {
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector})
    }

    #[test]
    fn a_pod_may_be_where_those_of_the_workload_are() {
        let own = away_from(&json!({"matchLabels": {"app": "web"}}));
        let expression = json!({"key": "app", "operator": "In", "values": ["web", "api"]});
        let own_too = away_from(&json!({"matchExpressions": [expression]}));
        let other = away_from(&json!({"matchLabels": {"app": "noisy"}}));
        let affinity = |terms: &[&Value]| {
            json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
            }}})
        };
        let pod = rendered(affinity(&[&own, &own_too]), json!({}));
        assert_eq!(pod.spec.get("affinity"), None);
        assert_eq!(pod.notes.len(), 1, "{:?}", pod.notes);
        assert!(pod.notes[0].contains("anti-affinity"), "{:?}", pod.notes);

        let pod = rendered(affinity(&[&own, &other]), json!({}));
        assert_eq!(pod.spec["affinity"], affinity(&[&other])["affinity"]);

        let kept = json!({"keepTopologySpreadConstraints": true});
        let pod = rendered(affinity(&[&own]), kept);
        assert_eq!(pod.spec["affinity"], affinity(&[&own])["affinity"]);
        assert!(pod.notes.is_empty());
    }

    #[test]
    fn readiness_gates_of_workload_are_dropped_from_access_pod() {
        let gates = json!({"readinessGates": [{"conditionType": "example.com/in-service"}]});
        let pod = rendered(gates, json!({}));
        assert_eq!(pod.spec.get("readinessGates"), None);
        assert!(pod.notes[0].contains("example.com/in-service"));
    }

    #[test]
    fn missing_labels_are_noted_for_downward_api_volumes() {
        let reads = |path: &str| json!({"fieldRef": {"fieldPath": path}, "path": "labels"});
        let volumes = json!({"volumes": [
            {"name": "all", "downwardAPI": {"items": [reads("metadata.labels")]}},
            {"name": "one", "projected": {"sources": [
                {"downwardAPI": {"items": [reads("metadata.labels['app']")]}},
            ]}},
            {"name": "fine", "downwardAPI": {"items": [reads("metadata.name")]}},
        ]});
        let pod = rendered(volumes.clone(), json!({}));
        let told: Vec<bool> = ["all", "one", "fine"]
            .map(|name| {
                pod.notes
                    .iter()
                    .any(|note| note.starts_with(&format!("volume {name} ")))
            })
            .into();
        assert_eq!(told, [true, true, false], "{:?}", pod.notes);
        let pod = rendered(volumes, json!({"podLabels": {"app": "web"}}));
        assert!(pod.notes.is_empty(), "{:?}", pod.notes);
    }

    #[test]
    fn probes_of_every_container_go_by_what_the_template_says_of_the_one() {
        let probe = json!({"exec": {"command": ["true"]}});
        let sidecar = json!({
            "name": "mesh", "image": "mesh:1", "restartPolicy": "Always",
            "startupProbe": probe, "readinessProbe": probe,
        });
        let containers = json!([
            {"name": "app", "image": "app:1", "livenessProbe": probe},
            {"name": "proxy", "image": "proxy:1", "readinessProbe": probe},
        ]);
        let more = json!({"initContainers": [sidecar], "containers": containers});
        let pod = rendered(more.clone(), json!({}));
        assert!(!json!(pod.spec).to_string().contains("Probe"));
        let pod = rendered(more, json!({"keepReadinessProbe": true}));
        let kept = json!(pod.spec).to_string();
        assert_eq!(kept.matches("readinessProbe").count(), 2);
        assert!(!kept.contains("livenessProbe") && !kept.contains("startupProbe"));
    }
}
