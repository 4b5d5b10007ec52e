//! Reduction of finished runs, Jobs and pods in stores to the fields that decisions use. They stay until the run is
//! deleted, and a cluster may have thousands.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use oz_api::harness::{HarnessRun, HarnessRunSpec, HarnessRunStatus};
use oz_api::labels;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::jobs::{condition, is_active};
use super::run::is_over;

/// The conditions of a Job that has ended.
const ENDS: [&str; 2] = ["Complete", "Failed"];

/// Returns a run in its stored form: of a finished run, only its identity, its place in the queue and its end. Its
/// status is not written again.
#[must_use]
pub fn run(run: HarnessRun) -> HarnessRun {
    if !is_over(&run) {
        return run;
    }
    let spec = HarnessRunSpec {
        template_ref: run.spec.template_ref,
        workspace_ref: run.spec.workspace_ref,
        ttl_seconds_after_finished: run.spec.ttl_seconds_after_finished,
        ..HarnessRunSpec::default()
    };
    let status = run.status.map(|status| HarnessRunStatus {
        observed_generation: status.observed_generation,
        phase: status.phase,
        job_name: status.job_name,
        workspace_ref: status.workspace_ref,
        completion_time: status.completion_time,
        ..HarnessRunStatus::default()
    });
    let mut metadata = run.metadata;
    // The stamp stays: another run that bears it is told by it.
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| name == labels::REQUESTER);
    }
    metadata.managed_fields = None;
    HarnessRun {
        metadata,
        spec,
        status,
    }
}

/// Removes the fields of a finished Job that no decision uses.
pub fn job(object: &mut DynamicObject) {
    let job = read::<Job>(object);
    if !job.is_some_and(|job| ENDS.iter().any(|end| condition(&job, end).is_some())) {
        return;
    }
    let pod = &object.data["spec"]["template"]["spec"];
    let images = pod["initContainers"].as_array().into_iter().flatten();
    let images: Vec<Value> = images
        .map(|one| json!({"name": one["name"], "image": one["image"]}))
        .collect();
    object.data["spec"] = json!({
        "template": {"spec": {"containers": [], "initContainers": images}},
    });
    keep(object, &[labels::GRANT]);
}

/// Removes the fields of a finished pod that no decision uses.
pub fn pod(object: &mut DynamicObject) {
    if read::<Pod>(object).is_none_or(|pod| is_active(&pod)) {
        return;
    }
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("spec");
        let status = fields.get_mut("status").and_then(Value::as_object_mut);
        let status = status.into_iter().flat_map(|status| status.iter_mut());
        for (name, value) in status {
            if !name.ends_with("ontainerStatuses") {
                continue;
            }
            for container in value.as_array_mut().into_iter().flatten() {
                *container = json!({
                    "name": container["name"], "state": container["state"], "image": "", "imageID": "",
                    "ready": false, "restartCount": container["restartCount"],
                });
            }
        }
    }
    keep(object, &[]);
}

/// Checks whether the JSON of an object may be a finished one, before it is deserialized.
#[must_use]
pub fn may_have_ended(has: impl Fn(&str, &Value) -> bool) -> bool {
    let said = [
        ("phase", "Succeeded"),
        ("phase", "Failed"),
        ("type", "Complete"),
        ("type", "Failed"),
    ];
    said.iter().any(|(field, value)| has(field, &json!(value)))
}

fn read<K: DeserializeOwned>(object: &DynamicObject) -> Option<K> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

/// Removes all other annotations.
fn keep(object: &mut DynamicObject, annotations: &[&str]) {
    let metadata = &mut object.metadata;
    metadata.managed_fields = None;
    if let Some(all) = &mut metadata.annotations {
        all.retain(|name, _| annotations.contains(&name.as_str()));
    }
}
