//! The plan that `ozctl explain` shows is the plan that the operator then carries out, for targets that own their pods
//! through other objects.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::PostParams;
use oz_api::TargetKind;
use oz_e2e::{
    AccessRequest, GrantedRequest, Scene, exec_request, exec_template, pod_request, rollouts,
};
use oz_testkit::{eventually, fixtures};
use serde_json::{Value, json};

use crate::{run, scene};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns a pod template with the label that identifies its workload.
fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app, "example.test/takes-time": "yes"}},
        "spec": {
            "containers": [{"name": "app", "image": fixtures::IMAGE}],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    })
}

async fn create<K>(scene: &Scene, object: Value) -> Result<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    Ok(scene.api().create(&PostParams::default(), &object).await?)
}

/// Creates a CronJob with a run in progress.
async fn nightly(scene: &Scene) -> Result<()> {
    let mut job = json!({"template": template("nightly")});
    job["template"]["spec"]["restartPolicy"] = json!("Never");
    let cron_job: CronJob = create(
        scene,
        json!({
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": job.clone()}},
        }),
    )
    .await?;
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": cron_job.uid(),
        "controller": true,
    });
    let metadata = json!({"name": "tonight", "ownerReferences": [owner]});
    create::<Job>(scene, json!({"metadata": metadata, "spec": job})).await?;
    fixtures::ready_pods(&scene.admin, scene.name(), "app=nightly", 1).await?;
    Ok(())
}

/// Creates a Rollout that refers to a Deployment, with a pod as Argo's controller would make it.
async fn rollout(scene: &Scene) -> Result<()> {
    let labels = json!({"matchLabels": {"app": "rollout"}});
    let model = json!({"replicas": 0, "selector": labels, "template": template("rollout")});
    create::<Deployment>(scene, json!({"metadata": {"name": "model"}, "spec": model})).await?;
    let spec = json!({"workloadRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "model",
    }});
    let rollouts = rollouts(&scene.admin, scene.name()).await?;
    let rollout = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "rollout"},
        "spec": spec,
    });
    let rollout = serde_json::from_value(rollout)?;
    let rollout = rollouts.create(&PostParams::default(), &rollout).await?;
    let owner = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "rollout",
        "uid": rollout.uid(), "controller": true,
    });
    let metadata = json!({
        "name": "rollout-1", "labels": {"app": "rollout"}, "ownerReferences": [owner],
    });
    let set = json!({"replicas": 1, "selector": labels, "template": template("rollout")});
    create::<ReplicaSet>(scene, json!({"metadata": metadata, "spec": set})).await?;
    fixtures::ready_pods(&scene.admin, scene.name(), "app=rollout", 1).await?;
    Ok(())
}

/// Returns the objects that the operator would create for a request of alice by a template.
async fn planned(scene: &Scene, template: &str) -> Result<Vec<Value>> {
    let words = [
        "explain",
        "--template",
        template,
        "--for",
        "alice",
        "--group",
        "devs",
        "-D",
        "5m",
        "-o",
        "json",
    ];
    let told = run(scene, "admin", &words).await?;
    told.ended_with(0)?;
    let told: Value = serde_json::from_str(&told.stdout)?;
    assert_eq!(told["planUnknown"], Value::Null, "{template}");
    assert_eq!(told["configuration"]["from"], "defaults", "{template}");
    let steps = told["plan"]["stages"].as_array().into_iter().flatten();
    let steps = steps.filter_map(Value::as_array).flatten();
    Ok(steps
        .filter_map(|step| step.get("Apply"))
        .cloned()
        .collect())
}

/// Checks whether `made` has all that was planned; additions of the API server are no difference.
fn has(made: &Value, planned: &Value) -> bool {
    match (made, planned) {
        (Value::Object(made), Value::Object(planned)) => planned
            .iter()
            .all(|(key, planned)| made.get(key).is_some_and(|made| has(made, planned))),
        (Value::Array(made), Value::Array(planned)) => planned
            .iter()
            .all(|planned| made.iter().any(|made| has(made, planned))),
        _ => made == planned,
    }
}

/// Checks that each planned object was made, and returns their kinds.
async fn compare<K: AccessRequest>(
    scene: &Scene,
    planned: &[Value],
    asked: &GrantedRequest<K>,
) -> Result<Vec<String>> {
    let (name, role) = (asked.object_name(), asked.role_name());
    let mut kinds = Vec::new();
    for child in planned {
        let kind = child["resource"]["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let made = match kind.as_str() {
            "Role" => serde_json::to_value(scene.api::<Role>().get(&role).await?)?,
            "RoleBinding" => serde_json::to_value(scene.api::<RoleBinding>().get(&name).await?)?,
            "Pod" => serde_json::to_value(scene.api::<Pod>().get(&name).await?)?,
            other => anyhow::bail!("{other} was planned"),
        };
        let called = child["object"]["metadata"]["name"].as_str();
        let called = called.context("no name was planned")?;
        let mut object = child["object"].clone();
        // These fields depend on the user and the expiry.
        for field in ["metadata", "apiVersion", "kind"] {
            object.as_object_mut().map(|object| object.remove(field));
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("activeDeadlineSeconds");
        }
        let mut object: Value = serde_json::from_str(&object.to_string().replace(called, &name))?;
        // The reserved name of its Role is known only once the Role is made.
        if kind == "RoleBinding" {
            object["roleRef"]["name"] = json!(role);
        }
        assert!(has(&made, &object), "planned {object}\nmade {made}");
        kinds.push(kind);
    }
    Ok(kinds)
}

#[tokio::test]
async fn explained_plan_matches_actions_of_operator() -> Result<()> {
    let scene = scene("explained").await?;
    nightly(&scene).await?;
    rollout(&scene).await?;
    let exec = scene.requests("alice").await?;
    let pods = scene.pod_requests("alice").await?;
    for (kind, target) in [
        (TargetKind::CronJob, "nightly"),
        (TargetKind::Rollout, "rollout"),
    ] {
        let by = exec_template(target, kind, target);
        let reference = json!({"controllerTargetRef": by.spec.controller_target_ref});
        scene.template(&by).await?;
        let plan = planned(&scene, target).await?;
        let asked = exec.granted(&exec_request(target, target, "5m")).await?;
        let made = compare(&scene, &plan, &asked).await?;
        assert_eq!(made, ["Role", "RoleBinding"], "{kind}");

        let own = format!("{target}-pod");
        scene.pod_template(&own, &reference).await?;
        let plan = planned(&scene, &own).await?;
        let asked = pods.granted(&pod_request(target, &own, "5m")).await?;
        assert_eq!(compare(&scene, &plan, &asked).await?, ["Pod"], "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_target_that_is_not_there_is_waited_for_and_that_is_explained() -> Result<()> {
    let scene = scene("explained-none").await?;
    scene
        .template(&exec_template("none", TargetKind::CronJob, "none"))
        .await?;
    let words = [
        "explain",
        "--template",
        "none",
        "--for",
        "alice",
        "--group",
        "devs",
    ];
    let told = run(&scene, "admin", &words).await?;
    let missing = format!("CronJob {}/none does not exist", scene.name());
    assert!(told.stdout.contains(&missing), "{}", told.stdout);
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("hers", "none", "5m")).await?;
    eventually("the operator to say so too", TIMEOUT, async || {
        let request = alice.api().get("hers").await?;
        let said = request.status.iter().flat_map(|status| &status.conditions);
        let mut said = said.map(|condition| &condition.message);
        Ok(said.any(|said| said.contains(&missing)).then_some(()))
    })
    .await
}
