//! Objects as large and as numerous as the API server accepts, against the memory limits of the chart. Both processes
//! run in control groups with these limits, if the machine permits control groups.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use oz_api::{ExecAccessRequest, PodAccessTemplate, labels};
use oz_e2e::{Operator, Options, Scene, System, TEMPLATE, WORKLOAD, exec_request, pod_template};
use oz_testkit::{MemoryLimit, Process, eventually};
use serde_json::{Value, json};

use crate::stopped;

/// The chart's memory limit of each process.
const LIMIT: u64 = 256 * 1024 * 1024;
const SOON: Duration = Duration::from_secs(120);
/// The number of objects that are written at once.
const AT_ONCE: usize = 6;

/// Returns the peak memory of a process in bytes.
fn peak(process: &Process) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.context("no peak")?.parse::<u64>()? * 1024)
}

/// Creating 300 requests with 6,756 annotations each, 10 templates of 1.4 MB, 300 pods of 1 MB, 30 Roles of 1 MB with
/// oz's label, and six dry runs of 2.5 MB at once, followed by a restart of the operator: the requests and templates
/// are denied, no process exceeds the chart's memory limit, and the RoleBinding of a grant is deleted at expiry.
#[tokio::test]
async fn all_that_can_be_stored() -> Result<()> {
    let (_place, scene) = stopped("memory").await?;
    let mut system = System::start(scene.cluster).await?;
    let _webhook = MemoryLimit::set(&system.webhook.process, LIMIT);
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "1m")).await?;

    let annotations = crate::numbers::annotations(6_756);
    let mut many = serde_json::to_value(exec_request("many", TEMPLATE, "5m"))?;
    many["metadata"]["annotations"] = annotations;
    let many = (0..300).map(|number| {
        let mut one = many.clone();
        one["metadata"]["name"] = format!("many-{number}").into();
        one
    });
    let created = write::<ExecAccessRequest>(&scene, many, false).await?;
    ensure!(created == 0, "{created} requests were let in");

    let args: Vec<String> = (0..100).map(|_| "x".repeat(14_000)).collect();
    let mutation = json!({"controllerTargetMutationConfig": {"args": args}});
    let fat = (0..10).map(|number| {
        let template = pod_template(&format!("fat-{number}"), WORKLOAD, &mutation);
        serde_json::to_value(template.ok()).unwrap_or_default()
    });
    let created = write::<PodAccessTemplate>(&scene, fat, false).await?;
    ensure!(created == 0, "{created} templates were let in");

    let created = write::<Pod>(&scene, (0..300).map(pod), false).await?;
    ensure!(created == 300, "{created} pods");
    let created = write::<Role>(&scene, (0..30).map(role), false).await?;
    ensure!(created == 30, "{created} Roles");

    write::<ExecAccessRequest>(&scene, (0..6).map(dry), true).await?;

    // The next start of the operator finds all these objects at once.
    let before = [
        peak(&system.operator.process)?,
        peak(&system.webhook.process)?,
    ];
    system.operator.process.kill9();
    system.operator = Operator::spawn(scene.cluster, &Options::default())?;
    let _operator = MemoryLimit::set(&system.operator.process, LIMIT);
    // The operator lists 400 MB, on a machine with other load.
    eventually("the operator to be ready", 3 * SOON, async || {
        let readiness = system.operator.readiness().await;
        Ok(readiness.ok().filter(|(code, _)| *code == 200).map(drop))
    })
    .await?;
    eventually("the binding to go", 2 * SOON, async || {
        let binding = scene
            .api::<RoleBinding>()
            .get_opt(&asked.object_name())
            .await?;
        Ok(binding.is_none().then_some(()))
    })
    .await?;
    let after = peak(&system.operator.process)?;
    for peak in before.into_iter().chain([after]) {
        ensure!(
            peak < LIMIT,
            "{peak} of {before:?} (operator, webhook) and {after} (the next operator)"
        );
    }
    for process in [&mut system.operator.process, &mut system.webhook.process] {
        ensure!(process.exited()?.is_none(), "a process ended");
    }
    Ok(())
}

fn pod(number: usize) -> Value {
    json!({"metadata": {"name": format!("fat-{number}")}, "spec": {"containers": [{
        "name": "app", "image": "app", "env": [{"name": "A", "value": "x".repeat(1_000_000)}],
    }]}})
}

fn role(number: usize) -> Value {
    let rule = json!({
        "apiGroups": [""], "resources": ["pods"], "verbs": ["get"],
        "resourceNames": ["x".repeat(1_000_000)],
    });
    json!({
        "metadata": {"name": format!("fat-{number}"), "labels": {labels::MANAGED_BY: labels::OZ}},
        "rules": [rule],
    })
}

/// Returns a request for a dry run.
fn dry(number: usize) -> Value {
    let fields: serde_json::Map<String, Value> = (0..60_000)
        .map(|field| (format!("f:field-{field}"), json!({})))
        .collect();
    let mut one = serde_json::to_value(exec_request("dry", TEMPLATE, "5m")).unwrap_or_default();
    one["metadata"]["name"] = format!("dry-{number}").into();
    one["metadata"]["annotations"] = json!({"note": "x".repeat(250_000)});
    one["metadata"]["managedFields"] = json!([{
        "manager": "m", "operation": "Update", "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": fields}},
    }]);
    one
}

/// Writes objects, several at once; returns the number of objects that the API server accepted.
async fn write<K>(
    scene: &Scene,
    objects: impl Iterator<Item = Value>,
    dry_run: bool,
) -> Result<usize>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let api: Api<K> = scene.api();
    let parameters = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let created = objects.map(|object| {
        let (api, parameters) = (api.clone(), parameters.clone());
        async move {
            let object: K = serde_json::from_value(object)?;
            anyhow::Ok(api.create(&parameters, &object).await.is_ok())
        }
    });
    let created: Vec<_> = futures::stream::iter(created)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let created: Vec<bool> = created.into_iter().collect::<Result<_>>()?;
    Ok(created.into_iter().filter(|taken| *taken).count())
}
