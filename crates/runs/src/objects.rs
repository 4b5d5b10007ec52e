//! The objects of a run: the NetworkPolicy, which is created first and deleted last, and the Job.

use std::collections::BTreeMap;

use oz_api::harness::{GROUP, HarnessRun, RunMode};
use oz_api::{Uid, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child;
use super::pod::{RUN_LABEL, deadline_seconds};
use super::reach::Reach;
use super::stored::StoredObject;
use super::template::Resolved;

/// The pods of brokers, as NetworkPolicies select them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broker {
    /// Their namespace.
    pub namespace: String,
    /// The labels of their pods.
    pub labels: BTreeMap<String, String>,
    /// The port of their pods.
    pub port: u16,
}

/// The prefix of the labels that Kueue reads.
const KUEUE: &str = "kueue.x-k8s.io/";
/// The annotation of the Job with the maximum number of events in the status of the run, for brokers.
pub const RECENT_EVENTS: &str = "oz.wizardofoz.co/recent-events";
/// The kind in the labels of the children.
pub const KIND: &str = "HarnessRun";
/// The kind of workspaces in the labels of the children.
pub const WORKSPACE_KIND: &str = "Workspace";

/// Creates the NetworkPolicy of a run: no ingress, and egress only to the broker and to `reach`. It has no owner: the
/// garbage collector would delete it while the pod is still in its grace period. `sealed` is the decision.
#[must_use]
pub fn network_policy(
    run: &StoredObject<'_, HarnessRun>,
    broker: &Broker,
    reach: Option<&Reach>,
    sealed: &str,
) -> Value {
    let to_broker = json!({
        "to": [{
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": broker.namespace},
            },
            "podSelector": {"matchLabels": broker.labels},
        }],
        "ports": [{"protocol": "TCP", "port": broker.port}],
    });
    let further = reach.map(Reach::rules).unwrap_or_default();
    let out: Value = std::iter::once(to_broker).chain(further).collect();
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(run.name()),
            "namespace": run.namespace.as_str(),
            "labels": {RUN_LABEL: labels::value(run.name())},
            "annotations": {labels::GRANT: sealed},
        },
        "spec": closed_but_for(run.identity.uid, &out),
    });
    mark(&mut policy["metadata"], run);
    policy
}

/// Creates the rules for the pods of an object: no ingress, and only this egress.
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

/// Returns the name of the NetworkPolicy of a run.
#[must_use]
pub fn policy_name(run: &str) -> String {
    format!("{run}-egress")
}

/// Returns the name of the workspace that oz creates for a run without one.
#[must_use]
pub fn workspace_name(run: &str) -> String {
    format!("{run}-ws")
}

/// Creates the Job of a run around the pod template from [`pod_template`](super::pod::pod_template). The run owns it,
/// so that it ends with the run while oz is down. `sealed` is the decision, and `voucher` the signature that the broker
/// verifies.
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

/// Creates the Job of a run without its spec.
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

/// Checks whether Kueue decides when the Job of a run starts.
#[must_use]
pub fn is_queued(run: &HarnessRun) -> bool {
    queue_labels(run).next().is_some()
}

fn queue_labels(run: &HarnessRun) -> impl Iterator<Item = (&String, &String)> {
    let labels = run.metadata.labels.iter().flatten();
    labels.filter(|(key, _)| key.starts_with(KUEUE))
}

/// Creates the workspace of a run without one: it is deleted with the run.
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

/// Adds the labels of a child to an object or to a pod template of a Job: oz finds both by them.
fn mark(metadata: &mut Value, run: &StoredObject<'_, HarnessRun>) {
    child::mark(metadata, KIND, &run.identity);
}
