//! What a run consists of: the NetworkPolicy, which is written first and goes last, and the Job.

use std::collections::BTreeMap;

use oz_api::harness::{GROUP, HarnessRun, RunMode};
use oz_api::{Uid, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child;
use super::pod::{RUN_LABEL, deadline_seconds};
use super::stored::StoredObject;
use super::template::Resolved;

/// Where brokers are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broker {
    /// Their namespace.
    pub namespace: String,
    /// The labels of their pods.
    pub labels: BTreeMap<String, String>,
    /// The port of their pods.
    pub port: u16,
}

/// What goes before the keys of labels that Kueue reads.
const KUEUE: &str = "kueue.x-k8s.io/";
/// How many of the run's events its status keeps at most: said to brokers, on the Job.
pub const RECENT_EVENTS: &str = "oz.wizardofoz.co/recent-events";
/// The kind, as children are marked with it.
pub const KIND: &str = "HarnessRun";
/// The kind of workspaces, likewise.
pub const WORKSPACE_KIND: &str = "Workspace";

/// The NetworkPolicy of a run: nothing gets in, and nothing out but to the broker. It has no owner: the garbage
/// collector would take it while the pod still has its grace. `sealed` is the decision.
#[must_use]
pub fn network_policy(run: &StoredObject<'_, HarnessRun>, broker: &Broker, sealed: &str) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(run.name()),
            "namespace": run.namespace.as_str(),
            "labels": {RUN_LABEL: labels::value(run.name())},
            "annotations": {labels::GRANT: sealed},
        },
        "spec": closed_but_for(run.identity.uid, &json!([{
            "to": [{
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": broker.namespace},
                },
                "podSelector": {"matchLabels": broker.labels},
            }],
            "ports": [{"protocol": "TCP", "port": broker.port}],
        }])),
    });
    mark(&mut policy["metadata"], run);
    policy
}

/// What is let in and out of the pods of an object: nothing gets in, and out gets only this.
pub(super) fn closed_but_for(owner: Uid<'_>, out: &Value) -> Value {
    // What is empty is said: what somebody adds there is seen, and put back.
    json!({
        "podSelector": {
            "matchLabels": {labels::OWNER_UID: owner.as_str()},
            "matchExpressions": [],
        },
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [],
        "egress": out,
    })
}

/// Name of the NetworkPolicy of a run.
#[must_use]
pub fn policy_name(run: &str) -> String {
    format!("{run}-egress")
}

/// Name of the workspace that is made for a run which names none.
#[must_use]
pub fn workspace_name(run: &str) -> String {
    format!("{run}-ws")
}

/// The Job of a run around the pod template that [`pod_template`](super::pod::pod_template) made. The run owns
/// it, so that it ends with the run while oz is down. `sealed` is the decision, and `voucher` what the broker believes it
/// by.
#[must_use]
pub fn job(
    run: &StoredObject<'_, HarnessRun>,
    template: &Resolved,
    mut pod: Value,
    sealed: &str,
    voucher: &str,
) -> Value {
    mark(&mut pod["metadata"], run);
    let mut job = job_metadata(run, sealed, voucher);
    let recent = template.interactive.max_recent_events.to_string();
    job["metadata"]["annotations"][RECENT_EVENTS] = json!(recent);
    job["spec"] = json!({
        "backoffLimit": run.spec.retries,
        "completions": 1,
        "parallelism": 1,
        "template": pod,
    });
    if run.spec.mode != RunMode::Interactive {
        job["spec"]["activeDeadlineSeconds"] = json!(deadline_seconds(template));
    }
    job
}

/// The Job of a run without its spec.
pub(super) fn job_metadata(
    run: &StoredObject<'_, HarnessRun>,
    sealed: &str,
    voucher: &str,
) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": run.name(),
            "namespace": run.namespace.as_str(),
            "labels": {RUN_LABEL: labels::value(run.name())},
            "annotations": {labels::GRANT: sealed, labels::VOUCHER: voucher},
            "ownerReferences": [owned(run)],
        },
    });
    for (key, value) in queue_labels(run) {
        job["metadata"]["labels"][key] = json!(value);
    }
    mark(&mut job["metadata"], run);
    job
}

/// Whether Kueue says when the Job of a run may begin.
#[must_use]
pub fn is_queued(run: &HarnessRun) -> bool {
    queue_labels(run).next().is_some()
}

fn queue_labels(run: &HarnessRun) -> impl Iterator<Item = (&String, &String)> {
    let labels = run.metadata.labels.iter().flatten();
    labels.filter(|(key, _)| key.starts_with(KUEUE))
}

/// The workspace of a run that names none: it ends with the run.
#[must_use]
pub fn workspace(run: &StoredObject<'_, HarnessRun>) -> Value {
    let mut workspace = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "Workspace",
        "metadata": {
            "name": workspace_name(run.name()),
            "namespace": run.namespace.as_str(),
            "labels": {RUN_LABEL: labels::value(run.name())},
            "annotations": {},
            "ownerReferences": [owned(run)],
        },
        "spec": {"storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"}, "ephemeral": true},
    });
    mark(&mut workspace["metadata"], run);
    workspace
}

fn owned(run: &StoredObject<'_, HarnessRun>) -> Value {
    child::owned(KIND, &run.identity)
}

/// The marks of a child, on an object and on a Job's pods alike: both are found by them.
fn mark(metadata: &mut Value, run: &StoredObject<'_, HarnessRun>) {
    child::mark(metadata, KIND, &run.identity);
}
