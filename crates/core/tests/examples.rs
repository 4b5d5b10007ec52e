//! Tests that oz's types read every manifest in `examples/` without loss, that each is valid unless its name
//! says otherwise, and that together they contain every field.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop where they fail, too"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use oz_api::{
    AccessLock, AccessPolicy, ExecAccessRequest, ExecAccessTemplate, PodAccessRequest,
    PodAccessTemplate, TransientClusterRoleBinding, TransientRoleBinding,
};
use oz_core::kinds::{AccessRequest as _, AccessTemplate as _, Family, Rules as _};
use oz_core::transient::Kind;
use oz_core::validate::Violation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns every file with its text.
fn files() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let transient = directory.join("transient");
    let mut files: Vec<(PathBuf, String)> = std::fs::read_dir(directory)
        .unwrap()
        .chain(std::fs::read_dir(transient).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() > 20, "examples are not where they were");
    files
}

/// Returns every object of every file, with the name of its file.
fn objects() -> Vec<(String, Value)> {
    files()
        .into_iter()
        .flat_map(|(path, text)| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            objects
                .into_iter()
                .map(move |object| (name.clone(), object))
        })
        .collect()
}

/// Reads the object as its type, which must serialise again without loss.
fn read<T: DeserializeOwned + Serialize>(file: &str, object: &Value) -> T {
    let typed: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    let written = serde_json::to_value(&typed).unwrap();
    if let Some(path) = first_loss(object, &written, String::new()) {
        panic!("{file}: {path} is lost");
    }
    typed
}

/// Returns the path of the first value in `from` that is missing or different in `to`.
fn first_loss(from: &Value, to: &Value, path: String) -> Option<String> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => from.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match to.get(key) {
                Some(there) => first_loss(value, there, path),
                None => Some(path),
            }
        }),
        (Value::Array(from), Value::Array(to)) if from.len() == to.len() => from
            .iter()
            .zip(to)
            .enumerate()
            .find_map(|(index, (from, to))| first_loss(from, to, format!("{path}[{index}]"))),
        _ if from == to => None,
        _ => Some(path),
    }
}

/// Returns the violations of the object, by its own kind's rules.
fn violations(file: &str, object: &Value) -> Vec<Violation> {
    let found = match object["kind"].as_str().unwrap() {
        "ExecAccessTemplate" => read::<ExecAccessTemplate>(file, object).check().err(),
        "PodAccessTemplate" => read::<PodAccessTemplate>(file, object).check().err(),
        "ExecAccessRequest" => read::<ExecAccessRequest>(file, object).check().err(),
        "PodAccessRequest" => read::<PodAccessRequest>(file, object).check().err(),
        "TransientRoleBinding" => read::<TransientRoleBinding>(file, object).terms().err(),
        "TransientClusterRoleBinding" => read::<TransientClusterRoleBinding>(file, object)
            .terms()
            .err(),
        "AccessLock" => {
            let lock = read::<AccessLock>(file, object);
            let made = "2026-12-01T00:00:00Z".parse().unwrap();
            Some(lock.violations(made))
        }
        "AccessPolicy" => {
            let policy = read::<AccessPolicy>(file, object);
            Some(policy.violations(jiff::Timestamp::UNIX_EPOCH))
        }
        "Deployment" => {
            read::<Deployment>(file, object);
            None
        }
        "Job" => {
            read::<Job>(file, object);
            None
        }
        "CronJob" => {
            read::<CronJob>(file, object);
            None
        }
        // A kind that belongs neither to oz nor to Kubernetes.
        "Rollout" => None,
        kind => panic!("{file}: what is a {kind}?"),
    };
    found.unwrap_or_default()
}

#[test]
fn examples_are_read_without_loss_and_are_valid() {
    for (file, object) in objects() {
        let found = violations(&file, &object);
        assert_eq!(
            file.starts_with("bad_"),
            !found.is_empty(),
            "{file}: {found:?}"
        );
    }
}

#[test]
fn examples_begin_with_short_comment() {
    for (path, text) in files() {
        let comment = text
            .lines()
            .take_while(|line| line.starts_with("# "))
            .count();
        assert!(
            (2..=3).contains(&comment),
            "{}: a comment of 2 or 3 lines",
            path.display()
        );
    }
}

#[test]
fn examples_can_live_in_one_namespace() {
    let mut names = BTreeSet::new();
    for (file, object) in objects() {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        assert!(
            names.insert(name.clone()),
            "{file}: {name} is in another file too"
        );
    }
}

#[test]
fn requests_name_a_template_that_is_there() {
    let objects = objects();
    for (file, request) in &objects {
        let kind = request["kind"].as_str().unwrap();
        let Some(kind) = kind.strip_suffix("Request") else {
            continue;
        };
        let template = format!("{kind}Template");
        let there = objects.iter().any(|(_, object)| {
            object["kind"] == template
                && object["metadata"]["name"] == request["spec"]["templateName"]
        });
        assert!(there, "{file}: no such {template}");
    }
}

#[test]
fn every_field_has_an_example() {
    let objects = objects();
    for crd in oz_core::kinds::crds(Family::Access) {
        let by_nobody = ["AuditEvent", "AccessRequestApproval", "AccessReview"];
        if by_nobody.contains(&crd.spec.names.kind.as_str()) {
            // Only oz writes these, or they name the UID of one request.
            continue;
        }
        let kind = crd.spec.names.kind.as_str();
        let mut shown = BTreeSet::new();
        for (_, object) in objects.iter().filter(|(_, object)| object["kind"] == kind) {
            paths(&object["spec"], ".spec".to_owned(), &mut shown);
        }
        let schema = crd.spec.versions[0].schema.as_ref().unwrap();
        let schema = schema.open_api_v3_schema.as_ref().unwrap();
        let mut fields = BTreeSet::new();
        schema_paths(
            &schema.properties.as_ref().unwrap()["spec"],
            ".spec".to_owned(),
            &mut fields,
        );
        for field in fields.difference(&shown) {
            // The two kinds of template share these; one example is enough.
            let shared = [
                ".spec.accessConfig.",
                ".spec.container",
                ".spec.reason",
                ".spec.extends",
                ".spec.emergency",
                ".spec.ticket",
            ];
            let elsewhere =
                kind.starts_with("Pod") && shared.iter().any(|part| field.starts_with(part));
            // The kind for one namespace has all the fields that the one for the cluster has.
            let elsewhere = elsewhere || kind.starts_with("TransientCluster");
            assert!(elsewhere, "no example shows {kind}{field}");
        }
    }
}

fn paths(value: &Value, path: String, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                paths(value, format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, path.clone(), found);
            }
        }
        _ => {}
    }
    found.insert(path);
}

/// Adds the fields of a schema, without those inside of Kubernetes' own types.
fn schema_paths(schema: &JSONSchemaProps, path: String, found: &mut BTreeSet<String>) {
    let foreign = ["podSpec", "env", "resources"]
        .iter()
        .any(|name| path.ends_with(name));
    if !foreign {
        for (name, property) in schema.properties.iter().flatten() {
            schema_paths(property, format!("{path}.{name}"), found);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            schema_paths(items, path.clone(), found);
        }
    }
    found.insert(path);
}
