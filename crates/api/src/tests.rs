//! Objects that the original stored are still readable, and objects that oz writes do not change by a read and a write.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::*;

/// Returns a spec with the defaults of the API server.
fn stored(kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": { "name": "x", "namespace": "y", "uid": "z", "generation": 1 },
        "spec": spec,
        "status": status,
    })
}

/// Returns the status that the original writes for a template that it cannot use.
fn original_status() -> Value {
    json!({
        "conditions": [{
            "type": "TemplateDurationsValid",
            "status": "False",
            "reason": "NotAcceptable",
            "message": "Error on spec.maxDuration: time: invalid duration \"junk\"",
            "lastTransitionTime": "2026-04-16T10:11:12Z",
            "observedGeneration": 1,
        }],
    })
}

#[test]
fn objects_of_original_are_decoded_with_any_values() {
    let config = json!({
        "allowedGroups": ["", "a b"],
        "defaultDuration": "junk",
        "maxDuration": "-5",
        "accessCommand": "{{ nope",
    });
    // The pair of API version and kind does not exist.
    let target = json!({ "apiVersion": "apps/v1", "kind": "Rollout", "name": "NOT A NAME" });
    let exec: ExecAccessTemplate = serde_json::from_value(stored(
        "ExecAccessTemplate",
        json!({ "accessConfig": config, "controllerTargetRef": target }),
        original_status(),
    ))
    .unwrap();
    assert_eq!(exec.spec.access_config.operations, [Operation::Exec]);
    assert!(!exec.status.unwrap().ready);

    // Both sources are set, and the amounts are invalid.
    let pod: PodAccessTemplate = serde_json::from_value(stored(
        "PodAccessTemplate",
        json!({
            "accessConfig": config,
            "controllerTargetRef": target,
            "podSpec": { "containers": [{ "name": "a" }] },
            "maxCpu": 1,
            "maxMemory": "lots",
            "controllerTargetMutationConfig": {
                "patchSpecOperations": [{ "op": "move", "path": "nowhere" }],
            },
        }),
        json!({}),
    ))
    .unwrap();
    assert_eq!(pod.spec.max_cpu.unwrap().0, "1");

    let status = json!({ "ready": true, "podName": "p", "accessMessage": "m", "conditions": [] });
    let request: PodAccessRequest = serde_json::from_value(stored(
        "PodAccessRequest",
        json!({ "templateName": "", "duration": "9999999h" }),
        status,
    ))
    .unwrap();
    let status = request.status.unwrap();
    assert_eq!((status.phase, status.expires_at), (Phase::Pending, None));
    assert!(status.ready);
}

#[test]
fn a_status_comes_back_to_the_nanosecond() {
    let status = RequestStatus {
        ready: true,
        phase: Phase::Active,
        pod_name: Some("web-1".to_owned()),
        pod_uid: Some("u-1".to_owned()),
        requester: Some("alice".to_owned()),
        granted_at: Some("2026-01-01T12:00:00.5Z".parse().unwrap()),
        expires_at: Some("2026-01-01T13:00:00.123456789Z".parse().unwrap()),
        ..RequestStatus::default()
    };
    let written = serde_json::to_value(&status).unwrap();
    assert_eq!(
        written,
        json!({
            "ready": true,
            "phase": "Active",
            "podName": "web-1",
            "podUID": "u-1",
            "requester": "alice",
            "grantedAt": "2026-01-01T12:00:00.5Z",
            "expiresAt": "2026-01-01T13:00:00.123456789Z",
        })
    );
    assert_eq!(
        serde_json::from_value::<RequestStatus>(written).unwrap(),
        status
    );
}

#[test]
fn patch_distinguishes_null_from_missing_value() {
    let read = |text: &str| serde_json::from_str::<PatchSpecOperation>(text).unwrap();
    let null = read(r#"{ "op": "add", "path": "/spec/x", "value": null }"#);
    assert_eq!(null.value, Some(Value::Null));
    let nothing = read(r#"{ "op": "remove", "path": "/spec/x" }"#);
    assert_eq!(nothing.value, None);
    assert_eq!(
        serde_json::to_value(&null).unwrap(),
        json!({ "op": "add", "path": "/spec/x", "value": null })
    );
    assert_eq!(
        serde_json::to_value(&nothing).unwrap(),
        json!({ "op": "remove", "path": "/spec/x" })
    );
}

#[test]
fn access_config_defaults_match_schema_defaults() {
    let config: AccessConfig = serde_json::from_value(json!({ "allowedGroups": [] })).unwrap();
    assert_eq!(config, AccessConfig::default());
    let crd = schema::finished(ExecAccessTemplate::crd());
    let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    let fields = schema
        .pointer("/openAPIV3Schema/properties/spec/properties/accessConfig/properties")
        .and_then(Value::as_object)
        .unwrap();
    let written = serde_json::to_value(&config).unwrap();
    for (name, field) in fields {
        if let Some(default) = field.get("default") {
            assert_eq!(written.get(name), Some(default), "{name}");
        }
    }
    assert!(
        fields
            .values()
            .filter(|field| field.get("default").is_some())
            .count()
            >= 10
    );
}

#[test]
fn nothing_leaves_a_terminal_phase() {
    let terminal = [Phase::Expired, Phase::Revoked, Phase::Denied, Phase::Failed];
    assert!(terminal.into_iter().all(Phase::is_terminal));
    assert!(!Phase::Pending.is_terminal() && !Phase::Active.is_terminal());
}
