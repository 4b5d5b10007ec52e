//! The objects of a run: the NetworkPolicy, which is created first and deleted last, and the Job.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::harness::{HarnessRun, RunMode, Workspace};
use oz_api::labels;
use oz_core::confine::network::{self, CLOSED, EmptyLists};
use oz_core::confine::{Owner, deadline};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::{self, labelled, object};
use super::pod::RUN_LABEL;
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
    let owner = run.owner(KIND);
    let metadata = owner.metadata(policy_name(run.name()));
    let label = (RUN_LABEL, run.name());
    let metadata = labelled(metadata, label, &[(labels::GRANT, sealed)]);
    let brokers = network::pods(Some(&broker.namespace), broker.labels.clone());
    let to_broker = NetworkPolicyEgressRule {
        to: Some(vec![brokers]),
        ports: Some(vec![network::port("TCP", broker.port, broker.port)]),
    };
    let further = reach.map(Reach::rules).unwrap_or_default();
    let open = std::iter::once(to_broker).chain(further).collect();
    closed_but_for(&owner, &metadata, open)
}

/// Creates the NetworkPolicy for the pods of an object: no ingress, and only this egress.
pub(super) fn closed_but_for(
    owner: &Owner<'_>,
    metadata: &ObjectMeta,
    open: Vec<NetworkPolicyEgressRule>,
) -> Value {
    let spec = network::rules(owner, CLOSED, Some(open), EmptyLists::Stated);
    object::<NetworkPolicy>(metadata, json!(spec))
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
    run.owner(KIND).mark_template(&mut pod["metadata"]);
    let mut metadata = job_metadata(run, sealed, voucher);
    let annotations = metadata.annotations.get_or_insert_default();
    let recent = template.interactive.max_recent_events.to_string();
    annotations.insert(RECENT_EVENTS.to_owned(), recent);
    let is_batch = run.spec.mode != RunMode::Interactive;
    let deadline = is_batch.then(|| deadline::lasting(template.timeout));
    child::job(&metadata, pod, run.spec.retries, deadline)
}

/// Returns the metadata of the Job of a run.
pub(super) fn job_metadata(
    run: &StoredObject<'_, HarnessRun>,
    sealed: &str,
    voucher: &str,
) -> ObjectMeta {
    let annotations = [(labels::GRANT, sealed), (labels::VOUCHER, voucher)];
    let metadata = run.owner(KIND).owned(run.name());
    let mut metadata = labelled(metadata, (RUN_LABEL, run.name()), &annotations);
    let queue = queue_labels(run).map(|(key, value)| (key.clone(), value.clone()));
    metadata.labels.get_or_insert_default().extend(queue);
    metadata
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
    let metadata = run.owner(KIND).owned(workspace_name(run.name()));
    let metadata = labelled(metadata, (RUN_LABEL, run.name()), &[]);
    let storage = json!({"size": "1Gi", "accessMode": "ReadWriteOnce"});
    object::<Workspace>(&metadata, json!({"storage": storage, "ephemeral": true}))
}
