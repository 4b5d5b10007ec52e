//! What a run consists of: the NetworkPolicy, which is written first and goes last, and the Job.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pod::{RUN_LABEL, deadline_seconds};
use super::template::Resolved;
use crate::api::harness::{GROUP, HarnessRun, RunMode};
use crate::labels;

/// Where brokers are.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The NetworkPolicy of a run: nothing gets in, and nothing out but to the broker. It has no owner: the garbage
/// collector would take it while the pod still has its grace. `sealed` is the decision.
#[must_use]
pub fn network_policy(run: &HarnessRun, broker: &Broker, sealed: &str) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": format!("{}-egress", name(run)),
            "namespace": run.metadata.namespace,
            "labels": {RUN_LABEL: labels::value(name(run))},
            "annotations": {labels::GRANT: sealed},
        },
        "spec": {
            "podSelector": {"matchLabels": {labels::OWNER_UID: run.metadata.uid}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{
                "to": [{
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": broker.namespace},
                    },
                    "podSelector": {"matchLabels": broker.labels},
                }],
                "ports": [{"protocol": "TCP", "port": broker.port}],
            }],
        },
    });
    mark(&mut policy["metadata"], run);
    policy
}

/// The Job of a run around the pod template that [`pod_template`](super::pod::pod_template) made. The run owns
/// it, so that it ends with the run while oz is down.
#[must_use]
pub fn job(run: &HarnessRun, template: &Resolved, mut pod: Value) -> Value {
    mark(&mut pod["metadata"], run);
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name(run),
            "namespace": run.metadata.namespace,
            "labels": {RUN_LABEL: labels::value(name(run))},
            "annotations": {
                RECENT_EVENTS: template.interactive.max_recent_events.to_string(),
            },
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/v1alpha1"),
                "kind": KIND,
                "name": name(run),
                "uid": run.metadata.uid,
                "controller": true,
            }],
        },
        "spec": {
            "backoffLimit": run.spec.retries,
            "completions": 1,
            "parallelism": 1,
            "template": pod,
        },
    });
    if run.spec.mode != RunMode::Interactive {
        job["spec"]["activeDeadlineSeconds"] = json!(deadline_seconds(template));
    }
    for (key, value) in run.metadata.labels.iter().flatten() {
        if key.starts_with(KUEUE) {
            job["metadata"]["labels"][key] = json!(value);
        }
    }
    mark(&mut job["metadata"], run);
    job
}

/// The marks of a child, on an object and on a Job's pods alike: both are found by them.
fn mark(metadata: &mut Value, run: &HarnessRun) {
    metadata["labels"][labels::MANAGED_BY] = json!(labels::OZ);
    metadata["labels"][labels::OWNER_KIND] = json!(KIND);
    metadata["labels"][labels::OWNER_UID] = json!(run.metadata.uid);
    metadata["annotations"][labels::OWNER_NAME] = json!(name(run));
}

fn name(run: &HarnessRun) -> &str {
    run.metadata.name.as_deref().unwrap_or_default()
}
