//! The objects that the chart renders, compared with the schemas that the API server itself publishes, strictly: an
//! unknown field fails. `schemas/` describes the kinds of the Prometheus operator, which no API server has by default,
//! as
//! far as the chart uses them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use oz_e2e::{repository, run};
use oz_testkit::{Cluster, Tool, Tools};
use serde_json::{Value, json};

use crate::{template, value_files};

/// The API groups of the chart's objects.
const GROUPS: [&str; 10] = [
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apps/v1",
    "apis/batch/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apiregistration.k8s.io/v1",
];

/// Closes a schema against fields that it does not describe.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_open = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true));
            let describes = fields.get("properties").is_some_and(Value::is_object);
            if describes && !is_open && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Writes a file for each kind, as `<kind>-<group>-<version>.json`, and returns their number.
fn write_schemas(cluster: &Cluster, directory: &Path) -> Result<usize> {
    let mut written = 0;
    for group in GROUPS {
        let mut get = cluster.kubectl("admin");
        get.args(["get", "--raw", &format!("/openapi/v3/{group}")]);
        let mut published: Value = serde_json::from_str(&run(get)?)?;
        let schemas = published["components"]["schemas"].take();
        for (name, schema) in schemas.as_object().context("no schemas")? {
            for kind in schema["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let part = |name: &str| kind[name].as_str().unwrap_or_default().to_owned();
                // kubeconform takes the version of the core group as its name.
                let group = match part("group") {
                    group if group.is_empty() => part("version"),
                    group => group,
                };
                let kind = part("kind").to_lowercase();
                let file = format!("{kind}-{group}-{}.json", part("version"));
                let mut all = schemas.clone();
                close(&mut all);
                let whole = json!({
                    "$ref": format!("#/components/schemas/{name}"),
                    "components": {"schemas": all},
                });
                let path = directory.join(file);
                if !path.exists() && is_ours(&part("kind")) {
                    std::fs::write(path, serde_json::to_vec(&whole)?)?;
                    written += 1;
                }
            }
        }
    }
    Ok(written)
}

/// Checks whether the chart may have a kind; each file repeats the whole of its group.
fn is_ours(kind: &str) -> bool {
    [
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CustomResourceDefinition",
        "Deployment",
        "Job",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PriorityClass",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    .contains(&kind)
}

#[tokio::test]
async fn the_api_server_knows_every_field_of_every_object() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let directory = tempfile::tempdir()?;
    let kinds = write_schemas(cluster, directory.path())?;
    assert_eq!(kinds, 18);
    let ours = repository().join("e2e/tests/chart/schemas");
    let tools = Tools::obtain(&Tool::CHART)?;
    let check = |manifests: &Path| {
        let mut kubeconform = Command::new(tools.path(Tool::Kubeconform)?);
        kubeconform.arg("-summary");
        for schemas in [directory.path(), &ours] {
            kubeconform.arg("-schema-location").arg(format!(
                "{}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json",
                schemas.display()
            ));
        }
        kubeconform.arg(manifests);
        run(kubeconform)
    };
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let manifests = directory.path().join(format!("{name}.yaml"));
        std::fs::write(&manifests, template(&[&values])?.stdout)?;
        let said = check(&manifests).with_context(|| name.clone())?;
        let all = "Invalid: 0, Errors: 0, Skipped: 0";
        assert!(said.contains(all), "{name}: {said}");
        assert!(!said.contains("Valid: 0"), "{name}: {said}");
    }
    // The schemas do refuse invalid objects.
    for text in [
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, lables: {}}\n",
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n\
         metadata: {name: a, namespace: b}\n\
         spec: {groups: [{name: a, rules: [{alert: A, exp: up}]}]}\n",
    ] {
        let wrong = directory.path().join("wrong.yaml");
        std::fs::write(&wrong, text)?;
        assert!(check(&wrong).is_err(), "{text}");
    }
    Ok(())
}
