//! Tests of whole pods: shapes that workloads have in practice, in `pods/`, and the resulting access pods, in
//! `snapshots/`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop where they fail, too"
)]

use std::path::Path;

use oz_api::{PodAccessTemplate, PodAccessTemplateSpec};
use oz_core::mutate::{Model, Rendered, render};
use oz_core::validate;
use serde_json::{Value, json};

/// Returns name, the workload's spec and the template's, for every file.
fn shapes() -> Vec<(String, Value, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pods");
    let mut shapes: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut shape: Value = serde_saphyr::from_str(&text).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, shape["workload"].take(), shape["access"].take())
        })
        .collect();
    shapes.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(shapes.len() >= 25, "only {} shapes", shapes.len());
    shapes
}

fn made(name: &str, workload: &Value, access: &Value) -> Rendered {
    let mut spec = json!({
        "accessConfig": {"allowedGroups": ["devs"]},
        "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    if access.get("podSpec").is_some() {
        spec.as_object_mut().unwrap().remove("controllerTargetRef");
    }
    for (field, value) in access.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let spec: PodAccessTemplateSpec = serde_json::from_value(spec).unwrap();
    let template = PodAccessTemplate::new(name, spec);
    let terms = validate::pod_access_template(&template)
        .unwrap_or_else(|violations| panic!("{name}: {violations:?}"));
    let model = Model::of_workload("Deployment web".to_owned(), workload);
    render(&terms.target, model.as_ref()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_shape_becomes_the_pod_that_was_agreed_on() {
    for (name, workload, access) in shapes() {
        insta::assert_yaml_snapshot!(name.as_str(), made(&name, &workload, &access));
    }
}

#[test]
fn no_label_of_a_workload_is_ever_on_its_access_pod() {
    for (name, workload, access) in shapes() {
        let theirs = &workload["template"]["metadata"]["labels"];
        for label in made(&name, &workload, &access).labels.keys() {
            assert!(theirs.get(label).is_none(), "{name}: {label}");
        }
    }
}

#[test]
fn fields_that_are_not_mutated_are_kept_unchanged() {
    let touched = [
        "readinessGates",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "topologySpreadConstraints",
    ];
    for (name, workload, access) in shapes() {
        if !access.is_null() {
            continue;
        }
        let pod = made(&name, &workload, &access);
        let spec = workload["template"]["spec"].as_object().unwrap();
        for (field, value) in spec {
            let lists = ["containers", "initContainers", "volumes"];
            if !touched.contains(&field.as_str()) && !lists.contains(&field.as_str()) {
                assert_eq!(pod.spec.get(field), Some(value), "{name}: {field}");
            }
        }
    }
}
