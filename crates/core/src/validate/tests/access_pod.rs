//! Tests of the fields that only templates for pods have.

use serde_json::{Value, json};

use super::super::*;
use super::{lines, pod_template};
use crate::confine::Ceilings;

#[test]
fn a_pod_template_has_one_source() {
    let pod = |change| lines(pod_access_template(&pod_template(change)));
    let spec = json!({ "containers": [{ "name": "shell", "image": "busybox" }] });
    assert!(pod(json!({ "controllerTargetRef": null, "podSpec": spec })).is_empty());
    assert_eq!(
        pod(json!({ "podSpec": spec })),
        ["spec.podSpec: must not be set together with controllerTargetRef"]
    );
    assert_eq!(
        pod(json!({ "controllerTargetRef": null })),
        ["spec.controllerTargetRef: must be set, unless podSpec is"]
    );
    assert_eq!(
        pod(json!({
            "controllerTargetRef": null,
            "podSpec": { "containers": [{ "name": "shell" }, { "name": "shell" }] },
            "accessConfig": { "containers": ["shell", "other"] },
            "controllerTargetMutationConfig": { "defaultContainerName": "nope" },
        })),
        [
            "spec.podSpec.containers[1].name: must not be used twice",
            "spec.controllerTargetMutationConfig.defaultContainerName: could not find container \
             named nope in PodSpec",
            "spec.accessConfig.containers[1]: could not find container named other in PodSpec",
        ]
    );
    assert_eq!(
        pod(json!({ "controllerTargetRef": null, "podSpec": { "containers": [] } })),
        ["spec.podSpec.containers: must have at least one container"]
    );
}

#[test]
fn container_named_by_template_may_be_a_sidecar_of_its_pod_spec() {
    let init = json!([
        { "name": "mesh", "restartPolicy": "Always" },
        { "name": "migrate" },
    ]);
    for (name, exists) in [("shell", true), ("mesh", true), ("migrate", false)] {
        let template = pod_template(json!({
            "controllerTargetRef": null,
            "podSpec": { "containers": [{ "name": "shell" }], "initContainers": init },
            "accessConfig": { "containers": [name] },
            "controllerTargetMutationConfig": { "defaultContainerName": name },
        }));
        let found = lines(pod_access_template(&template));
        assert_eq!(found.is_empty(), exists, "{name}: {found:?}");
    }
}

#[test]
fn ceilings_are_quantities_above_zero() {
    let template = pod_template(json!({ "maxCpu": "1500m", "maxMemory": "2Gi", "maxStorage": 1 }));
    let ceilings = pod_access_template(&template).unwrap().target.ceilings;
    assert_eq!(
        ceilings,
        Ceilings {
            cpu: "1.5".parse().ok(),
            memory: "2048Mi".parse().ok(),
            storage: "1".parse().ok(),
        }
    );
    let template = pod_template(json!({ "maxCpu": "lots", "maxMemory": "0", "maxStorage": "-1" }));
    let found = pod_access_template(&template).unwrap_err();
    let fields: Vec<&str> = found
        .iter()
        .map(|violation| violation.field.as_str())
        .collect();
    assert_eq!(fields, ["spec.maxCpu", "spec.maxMemory", "spec.maxStorage"]);
    assert_eq!(found[0].value.as_deref(), Some("lots"));
    assert_eq!(found[1].message, "must be greater than zero");
}

#[test]
fn a_mutation_can_be_carried_out() {
    let pod = |mutation: Value| {
        let change = json!({ "controllerTargetMutationConfig": mutation });
        let found = pod_access_template(&pod_template(change))
            .err()
            .unwrap_or_default();
        let prefix = "spec.controllerTargetMutationConfig.";
        found
            .iter()
            .map(|violation| violation.field.trim_start_matches(prefix).to_owned())
            .collect::<Vec<String>>()
    };
    assert!(
        pod(json!({
            "defaultContainerName": "app",
            "keepLivenessProbe": true,
            "podAnnotations": { "example.com/why": "Any text at all!" },
            "podLabels": { "app": "" },
            "nodeSelector": { "kubernetes.io/arch": "amd64" },
            "command": [],
            "env": [{ "name": "A", "value": "" }],
            "resources": { "limits": { "cpu": 1, "memory": "64Mi" } },
            "patchSpecOperations": [
                { "op": "replace", "path": "/spec/containers/0/name", "value": "shell" },
                { "op": "add", "path": "/metadata/annotations/example.com~1why", "value": null },
                { "op": "remove", "path": "/spec/affinity" },
                { "op": "move", "from": "/spec/a", "path": "/spec/b" },
            ],
        }))
        .is_empty()
    );
    assert_eq!(
        pod(json!({
            "defaultContainerName": "App",
            "podAnnotations": { "a b": "", "oz.wizardofoz.co/grant": "" },
            "podLabels": { "app": "not a label", "oz.wizardofoz.co/owner-uid": "x" },
            "nodeSelector": { "": "" },
            "env": [{ "name": "" }, { "name": "A=B" }],
            "resources": { "limits": { "cpu": "one" }, "requests": { "memory": "1KiB" } },
            "patchSpecOperations": [
                { "op": "replace", "path": "/spec/x" },
                { "op": "copy", "path": "/spec/x" },
                { "op": "remove", "path": "/status" },
                { "op": "remove", "path": "/specs" },
                { "op": "remove", "path": "/spec/~2" },
                { "op": "move", "path": "/spec/x", "from": "spec/y" },
            ],
        })),
        [
            "defaultContainerName",
            "podAnnotations[a b]",
            "podAnnotations[oz.wizardofoz.co/grant]",
            "nodeSelector[]",
            "podLabels[app]",
            "podLabels[oz.wizardofoz.co/owner-uid]",
            "resources.limits[cpu]",
            "resources.requests[memory]",
            "env[0].name",
            "env[1].name",
            "patchSpecOperations[0].value",
            "patchSpecOperations[1].from",
            "patchSpecOperations[2].path",
            "patchSpecOperations[3].path",
            "patchSpecOperations[4].path",
            "patchSpecOperations[5].from",
        ]
    );
}
