//! What is valid, and what is said about what is not.

use serde_json::{Value, json};

use super::*;
use crate::api::{
    ExecAccessRequest, ExecAccessTemplate, Operation, PodAccessRequest, PodAccessTemplate,
    TargetKind,
};

/// An object of the kind of `base`, with the change merged into it as a JSON Merge Patch does.
fn object<T: serde::de::DeserializeOwned>(mut base: Value, change: Value) -> T {
    fn merge(base: &mut Value, change: Value) {
        match (base, change) {
            (Value::Object(base), Value::Object(change)) => {
                for (key, value) in change {
                    if value.is_null() {
                        base.remove(&key);
                    } else {
                        merge(base.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (base, change) => *base = change,
        }
    }
    merge(&mut base, change);
    serde_json::from_value(base).unwrap()
}

fn exec_template(change: Value) -> ExecAccessTemplate {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessTemplate",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    });
    object(base, json!({ "spec": change }))
}

fn pod_template(change: Value) -> PodAccessTemplate {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "PodAccessTemplate",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    });
    object(base, json!({ "spec": change }))
}

fn exec_request(change: Value) -> ExecAccessRequest {
    let base = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessRequest",
        "metadata": { "name": "alice-1", "namespace": "shop" },
        "spec": { "templateName": "web" },
    });
    object(base, change)
}

/// What is wrong, as lines.
fn lines<T>(result: Result<T, Vec<Violation>>) -> Vec<String> {
    result
        .err()
        .unwrap_or_default()
        .iter()
        .map(Violation::to_string)
        .collect()
}

#[test]
fn a_plain_template_is_valid_and_has_the_documented_defaults() {
    let valid = exec_access_template(&exec_template(json!({}))).unwrap();
    assert_eq!(valid.default, GoDuration::from_secs(3600));
    assert_eq!(valid.max, GoDuration::from_secs(24 * 3600));
    assert_eq!(valid.groups, ["devs"]);
    assert!(valid.users.is_empty());
    assert!(valid.operations.iter().eq(&[Operation::Exec]));
    assert_eq!(
        (valid.target.kind, valid.target.name.as_str()),
        (TargetKind::Deployment, "web")
    );
    assert_eq!(valid.command.source(), crate::api::DEFAULT_ACCESS_COMMAND);

    let valid = pod_access_template(&pod_template(json!({}))).unwrap();
    assert_eq!(
        valid.target.source,
        PodSource::Workload(Target {
            kind: TargetKind::Deployment,
            name: "web".to_owned(),
        })
    );
    assert_eq!(valid.target.ceilings, Ceilings::default());
}

/// Whether both kinds of template say this about these access configs.
fn assert_config_violations(cases: &[(Value, &[&str])]) {
    for (config, violations) in cases {
        let change = json!({ "accessConfig": config });
        let exec = lines(exec_access_template(&exec_template(change.clone())));
        assert_eq!(&exec, violations, "{config}");
        let pod = lines(pod_access_template(&pod_template(change)));
        assert_eq!(&pod, violations, "{config}");
    }
}

#[test]
fn durations_are_positive_and_in_order() {
    assert_config_violations(&[
        (
            json!({ "defaultDuration": "2h", "maxDuration": "2h" }),
            &[] as &[&str],
        ),
        (
            json!({ "defaultDuration": "x", "maxDuration": "1d" }),
            &[
                r#"spec.accessConfig.defaultDuration: time: invalid duration "x""#,
                r#"spec.accessConfig.maxDuration: time: unknown unit "d" in duration "1d""#,
            ],
        ),
        (
            json!({ "defaultDuration": "0", "maxDuration": "-1h" }),
            &[
                "spec.accessConfig.defaultDuration: must be greater than zero",
                "spec.accessConfig.maxDuration: must be greater than zero",
            ],
        ),
        (
            json!({ "defaultDuration": "1h1ns", "maxDuration": "1h" }),
            &["spec.accessConfig.defaultDuration: must not be greater than maxDuration"],
        ),
    ]);
}

#[test]
fn an_access_config_is_checked_field_by_field() {
    assert_config_violations(&[
        (
            json!({ "allowedGroups": [], "allowedUsers": ["alice"] }),
            &[],
        ),
        (
            json!({ "allowedGroups": [] }),
            &[
                "spec.accessConfig.allowedGroups: must name at least one group, unless allowedUsers \
               names a user: nobody could use the template",
            ],
        ),
        (
            json!({ "allowedGroups": ["devs", " "], "allowedUsers": [""] }),
            &[
                "spec.accessConfig.allowedGroups[1]: must not be empty",
                "spec.accessConfig.allowedUsers[0]: must not be empty",
            ],
        ),
        (json!({ "bind": "Groups" }), &[]),
        (
            json!({ "bind": "Groups", "allowedGroups": [], "allowedUsers": ["alice"] }),
            &[
                "spec.accessConfig.bind: must be Requester as long as allowedGroups is empty: nobody \
               would be bound",
            ],
        ),
        (json!({ "accessCommand": "" }), &[]),
        (
            json!({ "accessCommand": "{{ .metadata.name }}" }),
            &[
                "spec.accessConfig.accessCommand: can't evaluate field metadata in type AccessCommand",
            ],
        ),
        (
            json!({ "operations": ["Log", "Exec"], "containers": ["app", "sidecar"] }),
            &[],
        ),
        (
            json!({ "operations": [] }),
            &["spec.accessConfig.operations: must name at least one operation"],
        ),
        (
            json!({ "operations": ["Exec", "Log", "Exec"] }),
            &["spec.accessConfig.operations[2]: must not be named twice"],
        ),
        (
            json!({ "containers": ["app", "Not A Name"] }),
            &[
                "spec.accessConfig.containers[1]: must be at most 63 lower-case letters, digits and \
               '-', with a letter or digit at both ends",
            ],
        ),
        (json!({ "commandPolicy": "x".repeat(1024) }), &[]),
        (
            json!({ "commandPolicy": "\u{e9}".repeat(513) }),
            &["spec.accessConfig.commandPolicy: must be at most 1024 bytes"],
        ),
        (
            json!({ "commandPolicy": " " }),
            &[
                "spec.accessConfig.commandPolicy: must not be empty: leave it out to allow every \
               command",
            ],
        ),
    ]);
}

#[test]
fn a_target_is_a_pair_that_exists() {
    for (target, violations) in [
        (json!({ "kind": "StatefulSet" }), &[] as &[&str]),
        (
            json!({ "kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1" }),
            &[],
        ),
        (
            json!({ "kind": "Rollout" }),
            &["spec.controllerTargetRef.apiVersion: must be argoproj.io/v1alpha1 for a Rollout"],
        ),
        (
            json!({ "kind": "DaemonSet", "apiVersion": "argoproj.io/v1alpha1" }),
            &["spec.controllerTargetRef.apiVersion: must be apps/v1 for a DaemonSet"],
        ),
        (
            json!({ "name": "" }),
            &[
                "spec.controllerTargetRef.name: must be at most 253 lower-case letters, digits, '-' \
               and '.', with a letter or digit at both ends and beside every '.'",
            ],
        ),
    ] {
        let change = json!({ "controllerTargetRef": target });
        assert_eq!(
            lines(exec_access_template(&exec_template(change.clone()))),
            violations
        );
        assert_eq!(
            lines(pod_access_template(&pod_template(change))),
            violations
        );
    }
}

#[test]
fn what_cannot_be_cut_needs_best_effort_on_a_shared_pod() {
    let config = |operations: Value| json!({ "accessConfig": { "sessions": "Required", "operations": operations } });
    let exec = |change| lines(exec_access_template(&exec_template(change)));
    assert!(exec(config(json!(["Exec", "Log"]))).is_empty());
    assert_eq!(
        exec(config(json!(["Attach", "PortForward"]))),
        [
            "spec.accessConfig.sessions: must be BestEffort with the operation Attach, which cannot be cut",
            "spec.accessConfig.sessions: must be BestEffort with the operation PortForward, which cannot be cut",
        ]
    );
    // A pod of one's own ends, and every connection with it.
    assert!(pod_access_template(&pod_template(config(json!(["Attach"])))).is_ok());
}

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

#[test]
fn a_request_is_checked_field_by_field() {
    let subdomain = "must be at most 253 lower-case letters, digits, '-' and '.', with a letter or \
                     digit at both ends and beside every '.'";
    for (spec, violations) in [
        (json!({}), vec![]),
        (
            json!({
                "duration": "5m", "targetPod": "web-1", "container": "app", "extends": "alice-0",
                "reason": "Ticket 7:\n\tlook at the heap",
            }),
            vec![],
        ),
        (
            json!({ "templateName": "" }),
            vec![format!("spec.templateName: {subdomain}")],
        ),
        (
            json!({ "targetPod": "Web" }),
            vec![format!("spec.targetPod: {subdomain}")],
        ),
        (
            json!({ "extends": "a/b" }),
            vec![format!("spec.extends: {subdomain}")],
        ),
        (
            json!({ "extends": "alice-1" }),
            vec!["spec.extends: must name another request".to_owned()],
        ),
        (
            json!({ "container": "a.b" }),
            vec![
                "spec.container: must be at most 63 lower-case letters, digits and '-', with a \
                  letter or digit at both ends"
                    .to_owned(),
            ],
        ),
        (
            json!({ "duration": "5" }),
            vec![r#"spec.duration: time: missing unit in duration "5""#.to_owned()],
        ),
        (
            json!({ "duration": "9999999h" }),
            vec![r#"spec.duration: time: invalid duration "9999999h""#.to_owned()],
        ),
        (
            json!({ "duration": "-1ns" }),
            vec!["spec.duration: must not be negative".to_owned()],
        ),
        (
            json!({ "reason": "\u{1b}[2J" }),
            vec!["spec.reason: must not contain control characters".to_owned()],
        ),
        (
            json!({ "reason": "x".repeat(MAX_REASON + 1) }),
            vec!["spec.reason: must be at most 1024 bytes".to_owned()],
        ),
    ] {
        let exec = exec_request(json!({ "spec": spec.clone() }));
        assert_eq!(lines(exec_access_request(&exec)), violations, "{spec}");
        if spec.get("targetPod").is_none() {
            let pod = object::<PodAccessRequest>(
                serde_json::to_value(&exec).unwrap(),
                json!({ "kind": "PodAccessRequest" }),
            );
            assert_eq!(lines(pod_access_request(&pod)), violations, "{spec}");
        }
    }
}

#[test]
fn zero_asks_for_the_default() {
    for (duration, asked) in [
        (json!(null), None),
        (json!("0"), None),
        (json!("0s"), None),
        (json!("-0s"), None),
        (json!("1ns"), Some(GoDuration::from_nanos(1))),
        (json!("1h30m"), Some(GoDuration::from_secs(5400))),
    ] {
        let request = exec_request(json!({ "spec": { "duration": duration.clone() } }));
        assert_eq!(
            exec_access_request(&request).unwrap().duration,
            asked,
            "{duration}"
        );
    }
}

#[test]
fn a_request_leaves_room_for_the_name_of_its_grant() {
    let named = |field: &str, length: usize| {
        let change = json!({ "metadata": { "name": null, field: "a".repeat(length) } });
        lines(exec_access_request(&exec_request(change)))
    };
    assert_eq!(MAX_REQUEST_NAME + "-".len() + 8, 253);
    assert!(named("name", MAX_REQUEST_NAME).is_empty());
    assert_eq!(
        named("name", MAX_REQUEST_NAME + 1),
        ["metadata.name: must be at most 244 characters"]
    );
    assert!(named("generateName", MAX_GENERATE_NAME).is_empty());
    assert_eq!(
        named("generateName", MAX_GENERATE_NAME + 1),
        ["metadata.generateName: must be at most 58 characters"]
    );
}

#[test]
fn conditions_have_the_words_of_the_original() {
    let message = |config: Value| {
        let template = exec_template(json!({ "accessConfig": config }));
        Violation::of_template_durations(&exec_access_template(&template).unwrap_err())
    };
    assert_eq!(
        message(json!({ "defaultDuration": "x", "maxDuration": "y" })).as_deref(),
        Some(r#"Error on spec.defaultDuration: time: invalid duration "x""#)
    );
    assert_eq!(
        message(json!({ "maxDuration": "5" })).as_deref(),
        Some(r#"Error on spec.maxDuration: time: missing unit in duration "5""#)
    );
    assert_eq!(
        message(json!({ "defaultDuration": "2h", "maxDuration": "1h" })).as_deref(),
        Some("Error: spec.defaultDuration can not be greater than spec.maxDuration")
    );
    assert_eq!(message(json!({ "allowedGroups": [] })), None);
}

#[test]
fn violations_make_one_line() {
    let request =
        exec_request(json!({ "spec": { "duration": "x", "container": "", "reason": "\r" } }));
    let violations = exec_access_request(&request).unwrap_err();
    assert!(violations[0].is_about_duration());
    assert!(!violations[1].is_about_duration());
    assert_eq!(
        Violation::list(&violations),
        "spec.duration: time: invalid duration \"x\"; spec.container: must be at most 63 \
         lower-case letters, digits and '-', with a letter or digit at both ends; spec.reason: \
         must not contain control characters"
    );
}
