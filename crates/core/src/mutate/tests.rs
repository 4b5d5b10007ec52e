//! Tests of single rules; tests of whole pods are in `tests/pods.rs`.

use oz_api::{PatchOp, PatchSpecOperation, TargetKind};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::confine::Ceilings;
use crate::validate::Target;

pub(super) fn model(template: Value) -> Model {
    Model {
        title: "Deployment web".into(),
        template,
        claims: Vec::new(),
        access_modes: BTreeMap::new(),
        version: None,
    }
}

pub(super) fn plain() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [
            {"name": "app", "image": "app:1", "args": ["serve"]},
            {"name": "proxy", "image": "proxy:1"},
        ]},
    })
}

pub(super) fn access_pod(mutation: Value) -> AccessPod {
    AccessPod {
        source: PodSource::Workload(Target {
            kind: TargetKind::Deployment,
            name: "web".into(),
        }),
        mutation: serde_json::from_value(mutation).unwrap(),
        ceilings: Ceilings::default(),
        network: None,
    }
}

fn rendered(template: Value, mutation: Value) -> Rendered {
    render(&access_pod(mutation), Some(&model(template))).unwrap()
}

fn patched(operations: Value) -> Result<Rendered, MutateError> {
    let pod = access_pod(json!({"patchSpecOperations": operations}));
    render(&pod, Some(&model(plain())))
}

#[test]
fn labels_of_the_workload_are_stripped_even_if_nothing_is_to_be_mutated() {
    let pod = rendered(plain(), json!({}));
    assert!(pod.labels.is_empty());
    assert_eq!(pod.spec["restartPolicy"], "Never");
    assert_eq!(pod.spec["terminationGracePeriodSeconds"], 1);
    assert_eq!(pod.annotations[DEFAULT_CONTAINER], "app");
}

#[test]
fn the_pod_template_of_a_cron_job_is_in_that_of_its_jobs() {
    let spec = json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": plain()}}});
    let model = Model::of_workload("CronJob web".into(), &spec).unwrap();
    assert_eq!(model.template, plain());
    for spec in [
        json!({}),
        json!({"jobTemplate": {}}),
        json!({"template": 1}),
    ] {
        assert!(Model::of_workload("CronJob web".into(), &spec).is_none());
    }
}

#[test]
fn restart_policy_on_failure_of_job_becomes_never() {
    let mut template = plain();
    template["spec"]["restartPolicy"] = json!("OnFailure");
    assert_eq!(rendered(template, json!({})).spec["restartPolicy"], "Never");
}

#[test]
fn note_about_claim_follows_from_its_access_modes() {
    let notes = |modes: Option<&[&str]>, reads: bool| -> String {
        let mut template = plain();
        let claim = json!({"claimName": "data", "readOnly": reads});
        template["spec"]["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": claim}]);
        let mut model = model(template);
        assert_eq!(
            model.mounted_claims().into_iter().collect::<Vec<_>>(),
            ["data"]
        );
        if let Some(modes) = modes {
            let modes = modes.iter().map(|&mode| mode.to_owned()).collect();
            model.access_modes.insert("data".into(), modes);
        }
        render(&access_pod(json!({})), Some(&model))
            .unwrap()
            .notes
            .join("; ")
    };
    for (modes, reads, said) in [
        (
            None,
            false,
            "writes to the claim data that the workload uses; if the claim is",
        ),
        (Some(&["ReadWriteOnce"][..]), false, "only on the same node"),
        (Some(&["ReadWriteOnce"]), true, "reads the claim data"),
        (
            Some(&["ReadWriteOncePod"]),
            false,
            "does not start while one of the workload has it",
        ),
        (
            Some(&["ReadWriteMany"]),
            false,
            "writes to the claim data that the workload uses",
        ),
    ] {
        let notes = notes(modes, reads);
        assert!(notes.contains(said), "{modes:?}: {notes}");
        assert_eq!(notes.contains("if the claim"), modes.is_none(), "{notes}");
    }
    assert_eq!(notes(Some(&["ReadWriteMany"]), true), "");
}

#[test]
fn annotations_can_be_added_where_there_are_none() {
    let pod = rendered(plain(), json!({"podAnnotations": {"a": "b"}}));
    assert_eq!(pod.annotations["a"], "b");
}

#[test]
fn a_label_or_annotation_of_ours_cannot_be_smuggled_in() {
    let mut template = plain();
    template["metadata"]["annotations"] = json!({"oz.wizardofoz.co/grant": "forged", "keep": "x"});
    let operations = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"oz.wizardofoz.co/owner-uid": "other"}},
    ]);
    let pod = rendered(template, json!({"patchSpecOperations": operations}));
    assert!(pod.labels.is_empty());
    assert_eq!(pod.annotations.len(), 2, "{:?}", pod.annotations);
}

#[test]
fn the_container_is_the_one_named_or_annotated_or_the_first() {
    let mut annotated = plain();
    annotated["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "proxy"});
    for (template, mutation, container) in [
        (plain(), json!({}), "app"),
        (annotated.clone(), json!({}), "proxy"),
        (
            annotated.clone(),
            json!({"purgeAnnotations": true}),
            "proxy",
        ),
        (annotated, json!({"defaultContainerName": "app"}), "app"),
    ] {
        assert_eq!(rendered(template, mutation).container, container);
    }
    let pod = access_pod(json!({"defaultContainerName": "none"}));
    let error = render(&pod, Some(&model(plain()))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not find container named none in PodSpec"
    );
}

#[test]
fn a_command_clears_the_arguments_and_arguments_come_after() {
    for (mutation, command, args) in [
        (json!({}), Value::Null, json!(["serve"])),
        (json!({"command": ["sh"]}), json!(["sh"]), Value::Null),
        (json!({"command": []}), Value::Null, Value::Null),
        (json!({"args": ["x"]}), Value::Null, json!(["x"])),
        (json!({"args": []}), Value::Null, Value::Null),
        (
            json!({"command": ["sh"], "args": ["-c"]}),
            json!(["sh"]),
            json!(["-c"]),
        ),
    ] {
        let pod = rendered(plain(), mutation.clone());
        let container = &pod.spec["containers"][0];
        let found = |field| container.get(field).cloned().unwrap_or_default();
        assert_eq!(
            (found("command"), found("args")),
            (command, args),
            "{mutation}"
        );
    }
}

#[test]
fn a_patch_is_applied_last_and_its_container_keeps_its_place() {
    let pod = rendered(
        plain(),
        json!({
            "command": ["sleep"],
            "patchSpecOperations": [
                {"op": "test", "path": "/spec/containers/0/command/0", "value": "sleep"},
                {"op": "replace", "path": "/spec/containers/0/name", "value": "shell"},
                {"op": "replace", "path": "/spec/restartPolicy", "value": "Always"},
            ],
        }),
    );
    assert_eq!(
        (pod.container.as_str(), &pod.spec["restartPolicy"]),
        ("shell", &json!("Always"))
    );
    assert_eq!(pod.annotations[DEFAULT_CONTAINER], "shell");
}

#[test]
fn every_operation_works_and_indices_may_count_from_the_end() {
    let pod = patched(json!([
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "last", "image": "x"}},
        {"op": "add", "path": "/spec/containers/-1", "value": {"name": "really-last", "image": "x"}},
        {"op": "replace", "path": "/spec/containers/-1/image", "value": "y"},
        {"op": "copy", "from": "/spec/containers/-1/image", "path": "/spec/containers/0/image"},
        {"op": "move", "from": "/spec/containers/0/args", "path": "/spec/containers/0/command"},
        {"op": "remove", "path": "/spec/containers/-2"},
        {"op": "add", "path": "/spec/hostname", "value": "mine"},
    ]))
    .unwrap();
    assert_eq!(
        pod.containers().collect::<Vec<_>>(),
        ["app", "proxy", "really-last"]
    );
    let first = &pod.spec["containers"][0];
    assert_eq!(
        (&first["image"], &first["command"]),
        (&json!("y"), &json!(["serve"]))
    );
}

#[test]
fn a_patch_that_fails_names_its_place_and_path() {
    for (operations, message) in [
        (
            json!([
                {"op": "add", "path": "/spec/hostname", "value": "x"},
                {"op": "replace", "path": "/spec/nothing", "value": "x"},
            ]),
            "patchSpecOperations[1] (replace /spec/nothing): ",
        ),
        (
            json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]),
            "patchSpecOperations[0] (add /metadata/labels/a): ",
        ),
        (
            json!([{"op": "test", "path": "/spec/containers/0/name", "value": "b"}]),
            "patchSpecOperations[0] (test /spec/containers/0/name): ",
        ),
        (
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": 1}]),
            "the result is not a pod template: ",
        ),
        (
            json!([{"op": "replace", "path": "/spec/containers", "value": []}]),
            "the pod template has no containers",
        ),
    ] {
        let error = patched(operations).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn a_patch_cannot_grow_without_bound() {
    let double = |step: usize| PatchSpecOperation {
        op: PatchOp::Copy,
        path: format!("/metadata/more{step}"),
        from: Some("/metadata".into()),
        value: None,
    };
    let mut pod = access_pod(json!({}));
    pod.mutation.patch_spec_operations = (0..64).map(double).collect();
    let error = render(&pod, Some(&model(plain()))).unwrap_err().to_string();
    assert!(error.contains("larger than 524288 bytes"), "{error}");
}

#[test]
fn a_patch_cannot_nest_deeper_than_can_be_read_again() {
    let mut deep = json!("x");
    for _ in 0..40 {
        deep = json!({"a": deep});
    }
    let add = json!({"op": "add", "path": "/metadata/a", "value": deep});
    let lowest = |levels: usize| format!("/metadata{}", "/a".repeat(levels));
    let doubled = |steps: u32| -> Value {
        let copies = (0..steps).map(|step| {
            let path = lowest(1 + 40 * 2_usize.pow(step));
            json!({"op": "copy", "from": "/metadata/a", "path": path})
        });
        std::iter::once(add.clone()).chain(copies).collect()
    };
    assert!(patched(doubled(1)).is_ok());
    // Thousands of levels fit into the size, and into no stack.
    for steps in [2, 11] {
        let error = patched(doubled(steps)).unwrap_err().to_string();
        assert!(error.contains("patchSpecOperations[2] (copy"), "{error}");
        assert!(error.contains("deeper than 100 levels"), "{error}");
    }
}

#[test]
fn patch_work_is_limited_regardless_of_result() {
    let large = json!("x".repeat(30_000));
    let there = json!({"op": "add", "path": "/metadata/annotations", "value": {"a": large}});
    let with = |again: Value| {
        let again = std::iter::repeat_n(again, 63);
        patched(std::iter::once(there.clone()).chain(again).collect())
    };
    for again in [
        json!({"op": "replace", "path": "/metadata/annotations/a", "value": large}),
        json!({"op": "test", "path": "/metadata/annotations/a", "value": large}),
        json!({"op": "copy", "from": "/metadata/annotations/a", "path": "/metadata/annotations/a"}),
    ] {
        let error = with(again.clone()).unwrap_err().to_string();
        assert!(error.contains("1048576"), "{again}: {error}");
    }
    let small = json!({"op": "test", "path": "/metadata/annotations/b", "value": null});
    let error = with(small).unwrap_err().to_string();
    assert!(!error.contains("1048576"), "{error}");
}

proptest! {
    #[test]
    fn no_patch_brings_it_down(
        paths in proptest::collection::vec("(/(spec|metadata|containers|-?[0-9]|-|name|labels)){1,4}", 1..5),
        ops in proptest::collection::vec(0_usize..6, 5),
    ) {
        let kinds = [PatchOp::Add, PatchOp::Remove, PatchOp::Replace, PatchOp::Move, PatchOp::Copy, PatchOp::Test];
        let mut pod = access_pod(json!({}));
        pod.mutation.patch_spec_operations = paths.iter().zip(&ops).map(|(path, op)| PatchSpecOperation {
            op: kinds[*op],
            path: path.clone(),
            from: Some("/spec/containers/0".into()),
            value: Some(json!({"name": "x"})),
        }).collect();
        let _ = render(&pod, Some(&model(plain())));
    }
}
