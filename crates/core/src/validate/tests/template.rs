//! Tests of templates: the terms that both kinds share, and the target.

use oz_api::{Operation, TargetKind};
use serde_json::{Value, json};

use super::super::*;
use super::{exec_template, lines, pod_template};
use crate::confine::Ceilings;

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
    assert_eq!(valid.command.source(), oz_api::DEFAULT_ACCESS_COMMAND);

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

/// Checks that both kinds of template report this for these access configs.
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
fn an_idle_timeout_is_for_sessions_through_the_gate_and_not_too_short() {
    assert_config_violations(&[
        (
            json!({ "sessions": "Gate", "idleTimeout": "10s" }),
            &[] as &[&str],
        ),
        (
            json!({ "sessions": "Gate", "idleTimeout": "9.9s" }),
            &["spec.accessConfig.idleTimeout: must be at least 10s"],
        ),
        (
            json!({ "sessions": "Gate", "idleTimeout": "10 minutes" }),
            &[
                r#"spec.accessConfig.idleTimeout: time: unknown unit " minutes" in duration "10 minutes""#,
            ],
        ),
        (
            json!({ "sessions": "Required", "idleTimeout": "10m" }),
            &[
                "spec.accessConfig.idleTimeout: must be omitted unless sessions is Gate: only the \
                 gate detects whether a session is used",
            ],
        ),
    ]);
}

#[test]
fn required_recording_excludes_debug() {
    let config = |mode: &str| {
        json!({
            "sessions": "Gate", "recording": { "mode": mode, "input": "All" },
            "operations": ["Exec", "Debug"], "debug": { "images": ["r.test/tools/*"] },
        })
    };
    assert_config_violations(&[
        (config("BestEffort"), &[] as &[&str]),
        (
            config("Required"),
            &[
                "spec.accessConfig.recording.mode: must not be Required with the operation Debug: \
                 a debug container runs its command even if no user attaches to it, and no session \
                 records that; use BestEffort, or another template for Debug",
            ],
        ),
    ]);
}

#[test]
fn moderation_is_for_sessions_through_the_gate_and_names_who() {
    assert_config_violations(&[
        (
            json!({ "sessions": "Gate", "moderation": { "viewers": 8, "groups": ["security"] } }),
            &[] as &[&str],
        ),
        (
            json!({ "sessions": "Required", "moderation": { "groups": ["security"] } }),
            &[
                "spec.accessConfig.moderation: must be omitted unless spec.accessConfig.sessions \
                 is Gate: only the gate has viewers",
            ],
        ),
        (
            json!({ "sessions": "Gate", "moderation": { "viewers": 9, "groups": [] } }),
            &[
                "spec.accessConfig.moderation.viewers: must be between 1 and 8",
                "spec.accessConfig.moderation.groups: must name at least one group: without a viewer no session can open",
            ],
        ),
        (
            json!({ "sessions": "Gate", "moderation": { "viewers": 1, "groups": ["a", " "] } }),
            &["spec.accessConfig.moderation.groups[1]: must not be empty"],
        ),
    ]);
}

#[test]
fn debug_operation_requires_gate_and_images() {
    let debug = |images: Value| json!({ "sessions": "Gate", "operations": ["Debug"], "debug": { "images": images } });
    assert_config_violations(&[
        (
            debug(json!(["busybox:1", "r.test/tools/*"])),
            &[] as &[&str],
        ),
        (
            json!({ "operations": ["Debug"] }),
            &[
                "spec.accessConfig.sessions: must be Gate with the operation Debug: only the gate \
                 checks the debug container",
                "spec.accessConfig.debug.images: must name images with the operation Debug, such as \
                 registry.example.com/tools/*",
            ],
        ),
        (
            json!({ "debug": { "images": ["busybox"] } }),
            &[
                "spec.accessConfig.debug: must be omitted unless spec.accessConfig.operations has Debug",
            ],
        ),
        (
            debug(json!([])),
            &["spec.accessConfig.debug.images: must name 1 to 32 images"],
        ),
        (
            debug(json!(["busybox", "*", "busybox"])),
            &[
                "spec.accessConfig.debug.images[1]: must be an image of at most 512 letters, or end in /*, :* or @*, \
                 with an image or the beginning of one before that",
                "spec.accessConfig.debug.images[2]: must not be named twice",
            ],
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
                "spec.accessConfig.allowedGroups: must name at least one group, unless \
               allowedUsers names a user: otherwise no user may use the template",
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
                "spec.accessConfig.bind: must be Requester as long as allowedGroups is empty: \
               otherwise the binding has no subject",
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
            &["spec.accessConfig.commandPolicy: must not be empty: omit it to allow every command"],
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
        (json!({ "kind": "Job", "apiVersion": "batch/v1" }), &[]),
        (json!({ "kind": "CronJob", "apiVersion": "batch/v1" }), &[]),
        (
            json!({ "kind": "CronJob" }),
            &["spec.controllerTargetRef.apiVersion: must be batch/v1 for a CronJob"],
        ),
        (
            json!({ "name": "" }),
            &[
                "spec.controllerTargetRef.name: must be at most 253 lower-case letters, digits, \
               '-' and '.', with a letter or digit at both ends and before and after every '.'",
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
fn uncuttable_operations_require_best_effort_sessions_on_shared_pod() {
    let config = |operations: Value| json!({ "accessConfig": { "sessions": "Required", "operations": operations } });
    let exec = |change| lines(exec_access_template(&exec_template(change)));
    assert!(exec(config(json!(["Exec", "Log"]))).is_empty());
    assert_eq!(
        exec(config(json!(["Attach", "PortForward"]))),
        [
            "spec.accessConfig.sessions: must be BestEffort with the operation Attach, which cannot be ended",
            "spec.accessConfig.sessions: must be BestEffort with the operation PortForward, which cannot be ended",
        ]
    );
    // A dedicated pod ends, and every connection with it.
    assert!(pod_access_template(&pod_template(config(json!(["Attach"])))).is_ok());
}

#[test]
fn conditions_have_the_words_of_the_original() {
    let message = |config: Value| {
        let template = exec_template(json!({ "accessConfig": config }));
        let violations = exec_access_template(&template).unwrap_err();
        Violation::of_template_durations(&violations).map(|invalid| invalid.to_string())
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
